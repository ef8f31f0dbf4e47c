"""Layers that are fed the same inputs, such as query, key and value: remembered once.

``shared_sums`` shares sums during a pass, ``shared_values`` shares covariances between passes.
Sharing saves memory and time only: each layer's numbers are those it would have alone.
"""
