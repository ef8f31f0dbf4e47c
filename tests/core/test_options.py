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


CHOICES: dict[str, Any] = {
    "acts_on": "gradient",
    "scale": "l2",
    "norms": "hold",
    "statistics": "hold",
    "unsupported": "ignore",
    "offload": "ram",
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_that_does_not_exist_is_named_with_those_that_do(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of .*not '{CHOICES[name]}'"):
        nscl.Memory(nn.Linear(2, 2), **{name: CHOICES[name]})


@pytest.mark.parametrize("rule", ["ratio", 10.0, None, nscl.Ratio])
def test_a_rule_must_be_a_rule(rule: Any) -> None:
    with pytest.raises(TypeError, match="rule must be one of nscl's \\(Ratio, Energy"):
        nscl.Memory(nn.Linear(2, 2), rule=rule)


def test_options_are_plain_data() -> None:
    memory = nscl.Memory(nn.Linear(2, 2), exclude="bias", rule=nscl.Ratio(3.0))
    assert memory.options() == {
        "rule": {"name": "Ratio", "a": 3.0, "literal": False},
        "acts_on": "step",
        "scale": "none",
        "norms": "ewc",
        "statistics": "freeze",
        "unsupported": "error",
        "exclude": ["bias"],
        "rank": None,
        "offload": None,
        "factors": "input",
        "every": 1,
    }
    assert repr(memory) == "Memory(Linear, rule=Ratio(a=3.0, literal=False), tasks=0)"
