"""The parts of a model: parameters seen as blocks ``[groups, out, features]``, by layer type.

New layer types register here (``layer_types.register_layer``). Nothing here computes or changes
weights.
"""
