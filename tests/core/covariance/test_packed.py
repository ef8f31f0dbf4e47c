"""Packed symmetric matrices are the matrices."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from nscl.core.covariance.packed import pack, packed_shape, unpack


@given(n=st.integers(1, 17), groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_unpacking_gives_the_matrix_back(n: int, groups: int, seed: int) -> None:
    torch.manual_seed(seed)
    matrix = torch.randn(groups, n, n, dtype=torch.float64)
    matrix = matrix + matrix.mT
    packed = pack(matrix)
    assert tuple(packed.shape) == packed_shape(groups, n)
    assert packed[0].numel() == n * (n + 1) // 2
    assert torch.equal(unpack(packed), matrix)


@given(n=st.integers(1, 9))
def test_packing_is_linear_so_packed_sums_are_sums(n: int) -> None:
    first, second = (torch.randn(1, n, n, dtype=torch.float64) for _ in range(2))
    first, second = first + first.mT, second + second.mT
    assert torch.equal(unpack(pack(first) + pack(second)), first + second)


def test_packing_leaves_the_matrix_alone() -> None:
    matrix = torch.arange(9.0).reshape(3, 3)
    matrix = matrix + matrix.mT
    before = matrix.clone()
    pack(matrix).zero_()
    assert torch.equal(matrix, before)
