import pytest
import torch

from nscl.data.inputs import Inputs, apply, count, join, nbytes, parts, rows, split, to

LEFT, RIGHT = torch.arange(10).view(5, 2), torch.arange(15.0).view(5, 3)
KINDS = [LEFT, (LEFT, RIGHT), {"left": LEFT, "right": RIGHT}]


def same(one: Inputs, other: Inputs) -> bool:
    pairs = zip(parts(one), parts(other), strict=True)
    return type(one) is type(other) and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("inputs", KINDS, ids=["tensor", "tuple", "dict"])
def test_rows_of_all_tensors_are_chosen_together(inputs: Inputs) -> None:
    chosen = rows(inputs, torch.tensor([3, 0]))
    assert count(chosen) == 2
    for whole, part in zip(parts(inputs), parts(chosen), strict=True):
        assert torch.equal(part, whole[[3, 0]])
    # A slice gives views: an episodic memory's tasks share one tensor.
    view = rows(inputs, slice(1, 3))
    assert parts(view)[0].data_ptr() == parts(inputs)[0][1:].data_ptr()


@pytest.mark.parametrize("inputs", KINDS, ids=["tensor", "tuple", "dict"])
def test_parts_joined_again_are_the_whole(inputs: Inputs) -> None:
    pieces = split(inputs, 2)
    assert [count(piece) for piece in pieces] == [2, 2, 1]
    assert same(join(pieces), inputs)


@pytest.mark.parametrize("inputs", KINDS, ids=["tensor", "tuple", "dict"])
def test_every_tensor_is_changed_moved_and_counted(inputs: Inputs) -> None:
    assert same(apply(lambda tensor: -tensor, apply(lambda tensor: -tensor, inputs)), inputs)
    assert all(tensor.device.type == "meta" for tensor in parts(to(inputs, "meta")))
    assert nbytes(inputs) == sum(tensor.nbytes for tensor in parts(inputs))


def test_keys_keep_their_tensors() -> None:
    inputs = {"left": LEFT, "right": RIGHT}
    joined = join([inputs, inputs])
    assert isinstance(joined, dict)
    assert torch.equal(joined["right"], torch.cat([RIGHT, RIGHT]))
