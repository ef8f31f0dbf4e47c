"""What moved without a share in the total is listed with the reason and the distance."""

from typing import Any

import pytest
import torch
from torch import nn

import nscl
from tests.core.memories import move

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).double()


class Unknown(nn.Module):
    """A layer of a type that is not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), Unknown(), nn.Linear(5, 3)).double()


def remembered(model: nn.Module, **options: Any) -> nscl.Memory:
    memory = nscl.Memory(model, **{"unsupported": "train", **options})
    memory.remember([X])
    return memory


def reasons(memory: nscl.Memory) -> dict[str, str]:
    return {one.name: one.why for one in memory.forgetting().uncounted}


def test_a_norm_that_is_left_free_is_never_silent() -> None:
    """The case that began this list: a total of nothing, and outputs that have moved."""
    model = network()
    memory = remembered(model, norms="train")
    before = model[1].weight.detach().clone()
    with torch.no_grad():
        model[1].weight += 0.1 * torch.randn(5)
    found = memory.forgetting(X)
    (listed,) = found.uncounted
    both = torch.cat([before, model[1].bias.detach()])
    truth = float((model[1].weight.detach() - before).norm() / both.norm())
    assert found.total.drift == 0
    assert (listed.name, listed.why) == ("1", "left free by norms='train'")
    assert listed.moved == pytest.approx(truth, rel=1e-12)
    assert found.probe is not None
    assert found.probe.drift > 1e-5
    assert "not counted: 1 moved by" in str(found)


def moved_by(what: str, model: nn.Sequential) -> None:
    with torch.no_grad():
        model.get_parameter(what).add_(1.0)


CASES = {
    "left free by norms='train'": ("1.bias", {"norms": "train"}, "1"),
    "left free by unsupported='train'": ("2.weight", {}, "2"),
    "excluded": ("3.bias", {"exclude": ["3"]}, "3"),
    "frozen, but moved by something that is not protected": ("1.bias", {"norms": "freeze"}, "1"),
}


@pytest.mark.parametrize("why", CASES)
def test_reasons(why: str) -> None:
    parameter, options, name = CASES[why]
    model = network()
    memory = remembered(model, **options)
    assert reasons(memory) == {}
    moved_by(parameter, model)
    assert reasons(memory) == {name: why}


def test_frozen_unsupported_layers_are_found_when_something_moves_them() -> None:
    model = network()
    memory = remembered(model, unsupported="freeze")
    moved_by("2.weight", model)
    assert reasons(memory)["2"].startswith("frozen, but moved")


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Linear(4, 5), nn.LayerNorm(5)
        self.heads = nn.ModuleList([nn.Linear(5, 2), nn.Linear(5, 2)])
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.heads[0](self.body(x) * self.scale)


def test_what_no_remembered_batch_reached() -> None:
    model = Heads().double()
    memory = remembered(model)
    move(model)
    assert reasons(memory) == {
        "norm": "no remembered batch reached this, nor does a gradient of its loss",
        "heads.1": "no remembered batch reached this",
    }


def test_buffers_of_numbers_count_and_counters_do_not() -> None:
    model = Heads().double()
    memory = remembered(model)
    model.count += 1
    assert reasons(memory) == {}
    model.scale *= 1.25
    (found,) = memory.forgetting().uncounted
    assert (found.name, found.why, found.moved) == ("scale", "a buffer", 0.25)


def test_what_came_later_cannot_be_compared() -> None:
    model = Heads().double()
    memory = remembered(model)
    model.heads.append(nn.Linear(5, 7).double())
    model.heads[1] = nn.Linear(5, 9).double()  # another shape than the one that never ran
    found = memory.forgetting().uncounted
    why = "not known at the last remember"
    assert [(one.name, one.why, one.moved) for one in found] == [
        ("heads.1", why, None),
        ("heads.2", why, None),
    ]
    assert "not counted: heads.1, heads.2: not known at the last remember" in str(
        memory.forgetting()
    )


def test_converting_a_model_moves_nothing() -> None:
    model = Heads().double()
    memory = remembered(model)
    model.to(torch.bfloat16)
    assert memory.forgetting().uncounted == ()


def test_tokens_without_covariances_are_not_measured_in_silence() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.linear = nn.Embedding(5, 4), nn.Linear(4, 2)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.linear(self.embed(ids))

    from nscl.core.projection.low_rank_projector import thin_projection
    from nscl.core.projection.spectrum import decompose

    def projector(block: Any, covariance: Any, previous: Any) -> Any:
        spectrum, vectors = decompose(covariance.dense(), nscl.Ratio(10.0))
        return thin_projection(vectors, spectrum.weights), spectrum

    model = Table().double()
    memory = nscl.Memory(model, projector=projector, keep_covariances=False)
    memory.remember([torch.randint(0, 5, (9, 3))])
    move(model)
    found = memory.forgetting()
    assert [layer.name for layer in found.layers] == ["linear"]
    assert [one.name for one in found.uncounted] == ["embed"]
    assert found.uncounted[0].why.startswith("nothing is kept to measure it by")


def test_an_empty_memory_lists_nothing() -> None:
    assert nscl.Memory(network(), unsupported="train").forgetting().uncounted == ()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
