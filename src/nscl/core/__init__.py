"""Null-space protection for any PyTorch model: mathematics in pure functions, hooks at the rim."""
