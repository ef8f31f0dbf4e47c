"""Sums of outer products: while data pass through, and packed between passes.

Everything here is float64 mathematics on plain tensors; no module or optimizer is touched.
"""
