"""The optimizer that a configuration names, and its rates by epoch."""

import pytest
import torch

from nscl.training.config.schema import Optim
from nscl.training.optimizers import make_optimizer, set_rates


def groups(*rates: float) -> list[dict[str, object]]:
    return [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)],
)
def test_the_named_optimizer(name: str, kind: type[torch.optim.Optimizer]) -> None:
    optimizer = make_optimizer(Optim.model_validate({"name": name}), groups(0.1))
    assert type(optimizer) is kind
    assert optimizer.param_groups[0].get("momentum", 0.9) == 0.9


def test_every_group_decays_from_its_own_rate() -> None:
    optim = Optim(epochs=4, milestones=(2, 3), gamma=0.5)
    optimizer = make_optimizer(optim, groups(0.4, 0.8))
    found = []
    for epoch in range(4):
        set_rates(optimizer, optim, epoch, epochs=4)
        found.append([group["lr"] for group in optimizer.param_groups])
    assert found == [[0.4, 0.8], [0.4, 0.8], [0.2, 0.4], [0.1, 0.2]]


def test_milestones_scale_with_shorter_phases() -> None:
    optim = Optim(epochs=80, milestones=(30, 60), gamma=0.5)
    optimizer = make_optimizer(optim, groups(1.0))
    rates = []
    for epoch in range(8):
        set_rates(optimizer, optim, epoch, epochs=8)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_milestones_scale_with_a_longer_first_task() -> None:
    optim = Optim(epochs=6, first_epochs=20, milestones=(3, 5), gamma=0.5)
    optimizer = make_optimizer(optim, groups(1.0))
    rates = []
    for epoch in range(20):
        set_rates(optimizer, optim, epoch, epochs=optim.epochs_of(0))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1.0] * 10 + [0.5] * 7 + [0.25] * 3
