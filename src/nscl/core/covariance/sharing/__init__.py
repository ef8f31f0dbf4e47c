"""Layers that are fed the same inputs, such as query, key and value: remembered once."""
