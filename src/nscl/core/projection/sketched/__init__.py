"""Projections of wide layers, of which a sketch knows some directions and the mean of all others.

Eigenvalues are written out for all ``d`` directions, ascending; vectors exist for the last of them
only. All others share one eigenvalue, the rest: ``C = U diag(c) Uᵀ + rest·(I − UUᵀ)``.
Nothing here ever has ``d × d`` numbers.
"""
