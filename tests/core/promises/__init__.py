"""What several modules of the core promise together."""
