"""Options are chosen once; another choice needs another memory, which may take over the state."""

from typing import Any

import pytest
import torch
from torch import nn

import nscl

OTHERS: dict[str, Any] = {
    "rule": nscl.Tolerance(1e-6),
    "acts_on": "displacement",
    "scale": "frobenius",
    "norms": "freeze",
    "statistics": "freeze",
    "unsupported": "train",
    "exclude": ("bias",),
    "rank": 4,
    "offload": "disk",
    "factors": "kronecker",
    "every": 3,
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_option_can_be_read_but_not_changed(name: str) -> None:
    memory = nscl.Memory.adam_nscl(nn.Linear(6, 3))
    before, found = getattr(memory, name), memory.options()
    with pytest.raises(AttributeError, match=rf"{name} of a memory cannot be .*{name}=\.\.\.\)"):
        setattr(memory, name, OTHERS[name])
    assert getattr(memory, name) == before
    assert memory.options() == found
    assert found.keys() == OTHERS.keys()


def test_the_way_out_leads_there() -> None:
    model, old = nn.Linear(6, 3), torch.randn(4, 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory = nscl.Memory(model, rule=nscl.Energy(0.99))
    with memory.protect(optimizer):
        assert memory.remember([old]).total.free > 3
    stricter = nscl.Memory(model, rule=nscl.Tolerance(1e-6), acts_on="displacement")
    stricter.load_state_dict(memory.state_dict())
    stricter.protect(optimizer)
    assert stricter.report().total.free == 3
    before = model(old).detach()
    model(torch.randn(8, 6)).square().sum().backward()
    optimizer.step()
    assert torch.allclose(model(old), before, atol=1e-5)
