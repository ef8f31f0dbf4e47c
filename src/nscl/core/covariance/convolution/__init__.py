"""Convolutions as linear maps of patches: written out, or correlated without writing them out.

``unfold`` is the plain definition, ``correlation`` the fast way to the same covariance, and
``correlation_plan`` its exact recipe. Pure functions of tensors: modules and hooks stay outside.
"""
