"""A covariance for which there is no memory names its layer and the way out."""

import pytest
import torch
from torch import nn

import nscl
from nscl.core.covariance.memory_errors import explain_out_of_memory
from nscl.core.model.block import Block
from nscl.errors import FeatureError

BLOCK = Block("body.fc", "Linear", "body.fc.weight", 0, 4, 2048, groups=2)


@pytest.mark.filterwarnings("ignore::nscl.NsclWarning")
def test_a_covariance_without_room_names_its_layer() -> None:
    """2.6 · 10¹⁴ bytes: more than a process can address."""
    memory = nscl.Memory.adam_nscl(nn.Sequential(nn.Linear(8_000_000, 1, bias=False)))
    with pytest.raises(FeatureError, match=r"'0' has 8000000 input.*476837.2 GiB.*exclude=\['0'\]"):
        memory.remember([torch.randn(1, 8_000_000)])
    assert memory.tasks == 0


@pytest.mark.parametrize(
    "problem",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=repr,
)
@pytest.mark.parametrize(("rank", "size"), [(None, 64), (256, 16), (10**6, 64)])
def test_each_kind_of_shortage_is_explained(
    problem: Exception, rank: int | None, size: int
) -> None:
    message = rf"'body.fc' has 2048 .* {size / 1024:.1f} GiB"
    with pytest.raises(FeatureError, match=message) as caught, explain_out_of_memory(BLOCK, rank):
        raise problem
    assert caught.value.__cause__ is problem


@pytest.mark.parametrize("problem", [RuntimeError("singular"), KeyboardInterrupt()], ids=repr)
def test_anything_else_is_left_as_it_is(problem: BaseException) -> None:
    with pytest.raises(type(problem)) as caught, explain_out_of_memory(BLOCK):
        raise problem
    assert caught.value is problem
