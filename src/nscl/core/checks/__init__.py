"""What a memory says of a model: what is held, what it costs, unprotected steps, lost layers.

Nothing here changes a state or a model, but for ``forget_layers``, which makes a smaller state.
"""
