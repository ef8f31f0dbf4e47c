"""Where many runs go: local processes side by side, or a Ray cluster; comparing and tuning."""
