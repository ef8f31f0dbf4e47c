"""Methods that project updates: a memory of old inputs beside the optimizer.

``base`` is what they share; the mathematics of subspaces is in ``subspaces``.
"""
