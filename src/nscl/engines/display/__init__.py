"""What is shown while many runs go on: progress, plain lines, JSON, a live table."""
