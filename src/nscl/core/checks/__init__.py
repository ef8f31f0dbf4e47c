"""Checks of a model against its memory: what is held, its cost, unprotected steps, lost layers.

Only ``forget_layers`` makes a new, smaller state; nothing else here changes a state or a model.
"""
