"""Layers with one covariance in common keep it in common, and it is counted once."""

import torch

from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.sharing.shared_values import added, mapped_once, tensor_bytes


def covariance(rows: int) -> Covariance:
    return Covariance(torch.randn(1, 6, dtype=torch.float64), rows, 1)


def test_sums_of_shared_covariances_are_shared() -> None:
    old, new, alone = covariance(3), covariance(4), covariance(5)
    total = added({"q": old, "k": old, "v": covariance(3)}, {"q": new, "k": new, "up": alone})
    assert total["q"] is total["k"]
    assert torch.equal(total["q"].sums, old.sums + new.sums)
    assert (total["q"].rows, total["q"].tasks) == (7, 2)
    assert total["v"].rows == 3
    assert torch.equal(total["up"].sums, alone.sums)


def test_layers_part_where_one_of_both_sides_differs() -> None:
    old, new = covariance(3), covariance(4)
    one = added({"q": old, "k": old}, {"q": new, "k": covariance(4)}, same_tasks=True)
    assert one["q"] is not one["k"]
    assert one["q"].tasks == 1
    other = added({"q": old, "k": covariance(3)}, {"q": new, "k": new})
    assert other["q"] is not other["k"]


def test_a_function_is_called_once_for_each_object() -> None:
    shared, calls = covariance(3), list[Covariance]()
    mapped_once({"q": shared, "k": shared, "v": covariance(3)}, calls.append)
    assert len(calls) == 2


def test_bytes_of_one_tensor_count_once() -> None:
    tensor = torch.zeros(5, dtype=torch.float64)
    assert tensor_bytes([tensor, tensor, tensor.clone()]) == 2 * 5 * 8
