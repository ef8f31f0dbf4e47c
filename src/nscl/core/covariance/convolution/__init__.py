"""Convolutions as linear maps of patches: written out, or correlated without writing them out."""
