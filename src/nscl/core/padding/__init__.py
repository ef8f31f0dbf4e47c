"""Padded positions of a batch: which they are, and which rows of a layer are theirs.

Masks come from the batch. The rows they leave out are in no count, covariance, loss or gradient.
"""
