"""One pass over old data: layer inputs, output gradients, and a check that no use was missed.

Hooks live only inside a ``with`` block; the model is left exactly as it was found.
"""
