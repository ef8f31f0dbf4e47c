"""Runs: one configuration, one loop for all methods, checkpoints that survive any kill."""
