"""Images once they are read: splits in files, resizing, augmentation, changes of domain streams.

Tensors are ``uint8 [N, C, H, W]`` throughout; only `augment.normalise` returns floats.
"""
