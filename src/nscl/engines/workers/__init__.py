"""Where runs are executed: processes of this machine, or the workers of a Ray cluster."""
