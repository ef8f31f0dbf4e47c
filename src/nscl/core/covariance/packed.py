"""Symmetric matrices in half the memory, without index tables.

A symmetric ``n × n`` matrix has ``n(n+1)/2`` different numbers. Cut it in four blocks: the lower
left one is kept whole, and the two triangles on the diagonal fit together into one rectangle. So
``pack`` and ``unpack`` are a few slice copies, where ``triu_indices`` would need four times the
matrix itself in 64-bit indices.
"""

import torch
from torch import Tensor


def pack(matrix: Tensor) -> Tensor:
    """Fold symmetric ``[..., n, n]`` into ``[..., 2·⌊n/2⌋ + 1, ⌈n/2⌉]``; reads one triangle only.

    >>> pack(torch.tensor([[1.0, 2.0], [2.0, 3.0]])).numel()
    3
    """
    n = matrix.shape[-1]
    bottom, top = n // 2, n - n // 2
    packed = matrix.new_zeros(*matrix.shape[:-2], 2 * bottom + 1, top)
    packed[..., :bottom, :] = matrix[..., top:, :top]
    triangles = packed[..., bottom:, :]
    triangles[..., :top, :] += matrix[..., :top, :top].triu()
    triangles[..., 1:, :bottom] += matrix[..., top:, top:].tril()
    return packed


def unpack(packed: Tensor) -> Tensor:
    """Unfold what ``pack`` folded.

    >>> unpack(pack(torch.eye(3)))
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    bottom, top = packed.shape[-2] // 2, packed.shape[-1]
    n = bottom + top
    matrix = packed.new_empty(*packed.shape[:-2], n, n)
    square, triangles = packed[..., :bottom, :], packed[..., bottom:, :]
    upper = triangles[..., :top, :].triu()
    lower = triangles[..., 1:, :bottom].tril()
    matrix[..., :top, :top] = upper + upper.triu(1).mT
    matrix[..., top:, top:] = lower + lower.tril(-1).mT
    matrix[..., top:, :top] = square
    matrix[..., :top, top:] = square.mT
    return matrix


def packed_diagonal(packed: Tensor) -> Tensor:
    """The diagonal ``[..., n]`` of what ``pack`` folded, without unfolding it.

    >>> packed_diagonal(pack(torch.diag(torch.tensor([1.0, 2.0, 3.0]))))
    tensor([1., 2., 3.])
    """
    bottom, top = packed.shape[-2] // 2, packed.shape[-1]
    triangles = packed[..., bottom:, :]
    first = triangles[..., :top, :].diagonal(dim1=-2, dim2=-1)
    second = triangles[..., 1:, :bottom].diagonal(dim1=-2, dim2=-1)
    return torch.cat([first, second], -1)


def packed_shape(groups: int, n: int) -> tuple[int, int, int]:
    """Shape of ``groups`` packed ``n × n`` matrices."""
    return groups, 2 * (n // 2) + 1, n - n // 2
