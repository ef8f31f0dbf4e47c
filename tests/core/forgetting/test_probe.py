"""The movement on a probe is what two copies of the model, before and after, would show."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.forgetting.probe import compare
from tests.core.memories import move

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

OLD, NEW = torch.randn(20, 4).double(), torch.randn(7, 4).double()


class Net(nn.Module):
    """Answers in the form that is asked for; drops units while it trains."""

    def __init__(self, form: str = "tensor") -> None:
        super().__init__()
        self.form, self.body, self.norm = form, nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.head, self.drop = nn.Linear(6, 3), nn.Dropout(0.5)

    def embed(self, x: Tensor) -> Tensor:
        return self.norm(self.body(x)).tanh()

    def forward(self, x: Tensor) -> Any:
        features = self.embed(x)
        logits = self.head(self.drop(features))
        if self.form == "tensor":
            return logits
        if self.form == "tuple":
            return features, logits.argmax(1)
        return {"logits": logits, "hidden": features, "loss": logits.sum()}


def trained(form: str = "tensor") -> tuple[Net, Net, nscl.Memory]:
    """A model that has moved, its copy from before, and the memory."""
    model = Net(form).double()
    memory = nscl.Memory(model, rule=nscl.Energy(0.1))
    memory.remember([OLD])
    before = copy.deepcopy(model).eval()
    move(model)
    model.train()(NEW)  # and the running statistics as well
    return model, before, memory


def drift(old: Tensor, new: Tensor) -> tuple[float, float]:
    moved = (new - old).square().sum(-1).mean()
    return float(moved), float(moved / old.square().sum(-1).mean())


@torch.no_grad()
@pytest.mark.parametrize("form", ["tensor", "dict"])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x, "labels"), lambda x: {"x": x}])
def test_logits_against_two_copies(form: str, wrap: Any) -> None:
    model, before, memory = trained(form)
    found = memory.forgetting(wrap(NEW)).probe
    after = copy.deepcopy(model).eval()
    old, new = (m(NEW) if form == "tensor" else m(NEW)["logits"] for m in (before, after))
    p, q = old.softmax(1), new.softmax(1)
    assert found is not None
    assert found.rows == 7
    assert (found.drift, found.relative) == pytest.approx(drift(old, new), rel=1e-12)
    assert found.kl == pytest.approx(float((p * (p / q).log()).sum(1).mean()), rel=1e-9)
    assert found.agreement == float((old.argmax(1) == new.argmax(1)).double().mean())


@torch.no_grad()
def test_outputs_that_are_no_logits() -> None:
    model, before, memory = trained("tuple")
    found = memory.forgetting(NEW).probe
    old, new = before(NEW)[0], copy.deepcopy(model).eval()(NEW)[0]
    assert found is not None
    assert (found.drift, found.relative) == pytest.approx(drift(old, new), rel=1e-12)
    assert (found.kl, found.agreement) == (None, None)


@torch.no_grad()
def test_a_function_may_run_any_part_of_the_model() -> None:
    model, before, memory = trained()
    batch = ("id", NEW)
    found = memory.forgetting(batch, forward=lambda m, b: m.embed(b[1])[:, :1]).probe
    old, new = (m.embed(NEW)[:, :1] for m in (before, copy.deepcopy(model).eval()))
    assert found is not None
    assert (found.drift, found.relative) == pytest.approx(drift(old, new), rel=1e-12)


def test_on_the_old_data_a_linear_model_moves_as_its_layer_does() -> None:
    model = nn.Linear(4, 3).double()
    memory = nscl.Memory(model)
    memory.remember([OLD])
    move(model)
    found = memory.forgetting(OLD)
    assert found.probe is not None
    assert found.probe.drift == pytest.approx(found.total.drift, rel=1e-12)
    assert found.probe.relative == pytest.approx(found.total.relative, rel=1e-12)


def test_what_has_not_moved_has_not_moved_at_all() -> None:
    model = Net().double()
    memory = nscl.Memory(model)
    memory.remember([OLD])
    model.train()  # dropout and batch statistics play no part
    found = memory.forgetting(NEW).probe
    assert found is not None
    assert (found.drift, found.relative, found.kl, found.agreement) == (0.0, 0.0, 0.0, 1.0)


def test_the_model_stays_as_it_is() -> None:
    model, _, memory = trained()
    model.head.eval()
    state = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    memory.forgetting(NEW)
    assert modes == [module.training for module in model.modules()]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_padding_has_no_part() -> None:
    old, new = torch.randn(2, 5, 3).double(), torch.randn(2, 5, 3).double()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    real = mask.bool()
    found = compare({"logits": old}, {"logits": new}, mask=mask)
    assert found.rows == 7
    assert (found.drift, found.relative) == pytest.approx(drift(old[real], new[real]), rel=1e-12)
    pooled = compare({"logits": old[:, :, 0]}, {"logits": new[:, :, 0]}, mask=mask)
    assert pooled.rows == 2  # a class for each text, as many as it has positions


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return self.linear(x)


def test_the_mask_of_a_batch_is_used() -> None:
    model = Padded().double()
    memory = nscl.Memory(model)
    batch = {"x": torch.randn(2, 5, 4).double(), "attention_mask": torch.ones(2, 5)}
    memory.remember([batch], likelihood="gaussian")
    move(model)
    batch["attention_mask"][1, 3:] = 0
    found = memory.forgetting(batch).probe
    assert found is not None
    assert found.rows == 8


def test_a_probe_that_cannot_be_measured_says_why() -> None:
    model, _, memory = trained()
    with pytest.raises(nscl.NsclError, match=r"the probe is empty: float64 tensor of shape"):
        memory.forgetting(NEW[:0])
    with pytest.raises(nscl.NsclError, match=r"the model could not take the probe .*forward="):
        memory.forgetting(torch.randn(2, 9).double())
    with pytest.raises(nscl.NsclError, match="cannot be compared: str as remembered"):
        memory.forgetting(NEW, forward=lambda model, batch: "words")
    with pytest.raises(ValueError, match="give probe=batch too"):
        memory.forgetting(forward=lambda model, batch: batch)
    with pytest.raises(nscl.NsclError, match="nothing to recall"):
        nscl.Memory(model).forgetting(NEW)
