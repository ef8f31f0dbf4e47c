"""Experts in two parameters against a slow loop over tokens."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl
from nscl.core.model.layer_types import Call, layer_type_of
from nscl.errors import FeatureError, UnsupportedError
from tests.core.memories import covariance, move, rows_seen
from tests.core.model.tying import normal

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

EXPERTS, WIDE, INNER, TOKENS = 4, 6, 5, 7


class Experts(nn.Module):
    """As transformers describes them, computed token by token."""

    is_transposed = has_bias = has_post_expert_norm = False

    def __init__(self, *, has_gate: bool = True) -> None:
        super().__init__()
        self.has_gate = has_gate
        self.wide = 2 * INNER if has_gate else INNER
        up = nn.Parameter(torch.randn(EXPERTS, self.wide, WIDE))
        setattr(self, "gate_up_proj" if has_gate else "up_proj", up)
        self.down_proj = nn.Parameter(torch.randn(EXPERTS, WIDE, INNER))
        self.act_fn = torch.tanh

    def _apply_gate(self, projected: Tensor) -> Tensor:
        gate, up = projected.chunk(2, -1)
        return F.silu(gate) * up

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        return self.slowly(hidden_states, top_k_index, top_k_weights)[0]

    def slowly(
        self, hidden: Tensor, index: Tensor, weights: Tensor
    ) -> tuple[Tensor, list[tuple[int, int, Tensor, Tensor, Tensor, Tensor]]]:
        """The output, and for each token and expert the rows and products of both matrices."""
        up = self.gate_up_proj if self.has_gate else self.up_proj
        act = self._apply_gate if self.has_gate else self.act_fn
        total, steps = torch.zeros_like(hidden), []
        for token, experts in enumerate(index.tolist()):
            for place, expert in enumerate(experts):
                first = up[expert] @ hidden[token]
                inner = act(first) * weights[token, place]
                second = self.down_proj[expert] @ inner
                steps.append((token, expert, hidden[token], first, inner, second))
                chosen = torch.arange(len(hidden))[:, None] == token
                total = total + chosen * second
        return total, steps


def routed(tokens: int = TOKENS) -> tuple[Tensor, Tensor, Tensor]:
    """Two of the first three experts for every token: the last one sees nothing."""
    index = torch.stack([torch.randperm(EXPERTS - 1)[:2] for _ in range(tokens)])
    return normal(tokens, WIDE), index, torch.rand(tokens, 2).double()


def names(module: Experts) -> tuple[str, str]:
    return ("gate_up_proj" if module.has_gate else "up_proj"), "down_proj"


@pytest.mark.parametrize("has_gate", [True, False])
def test_each_expert_sees_the_tokens_that_were_routed_to_it(has_gate: bool) -> None:
    model, batch = Experts(has_gate=has_gate).double(), routed()
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([batch], forward=lambda m, b: m(*b))
    steps = model.slowly(*batch)[1]
    for name, row in zip(names(model), (2, 4), strict=True):
        truth = torch.zeros_like(covariance(memory, name))
        for step in steps:
            truth[step[1]] += torch.outer(step[row], step[row]).detach() / TOKENS
        assert (covariance(memory, name) - truth).abs().max() < 1e-12
        assert truth[-1].eq(0).all()
        assert rows_seen(memory, name) == TOKENS


@pytest.mark.parametrize("has_gate", [True, False])
def test_gradients_at_the_outputs_of_both_matrices_are_autograds(has_gate: bool) -> None:
    model, batch = Experts(has_gate=has_gate).double(), routed()
    output, steps = model.slowly(*batch)
    outside = normal(*output.shape)
    kind = layer_type_of(model)
    assert kind is not None
    found = list(kind.gradients(model, Call(batch, {}, output), outside))
    for rows, product in zip(found, (3, 5), strict=True):
        truth = torch.autograd.grad(output, [s[product] for s in steps], outside, retain_graph=True)
        for expert in range(EXPERTS):
            mine = [g for g, s in zip(truth, steps, strict=True) if s[1] == expert]
            second = sum((torch.outer(g, g) for g in mine), torch.zeros(1).double())
            assert torch.allclose(rows[expert].mT @ rows[expert], second, atol=1e-12)


def test_old_tokens_are_held_and_others_learned() -> None:
    model, old = Experts().double(), routed(2)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    memory.protect(optimizer)
    memory.remember([old], forward=lambda m, b: m(*b))
    before, unseen = model(*old).detach(), model.gate_up_proj[-1].detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        x, _, share = routed()
        model(
            x, torch.tensor([[0, EXPERTS - 1]]).expand(TOKENS, 2), share
        ).square().sum().backward()
        optimizer.step()
    assert (model(*old) - before).abs().max() < 1e-12
    assert (model.gate_up_proj[-1] - unseen).abs().max() > 1e-3  # the unused expert is free


def test_forgetting_is_the_movement_of_every_product() -> None:
    model, batch = Experts().double(), routed()
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([batch], forward=lambda m, b: m(*b))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    steps = model.slowly(*batch)[1]
    move(model)
    found = {layer.name: layer.drift for layer in memory.forgetting().layers}
    for name, row in zip(names(model), (2, 4), strict=True):
        apart = model.get_parameter(name).detach() - before[name]
        drift = sum(float((apart[s[1]] @ s[row].detach()).square().sum()) for s in steps) / TOKENS
        assert found[name] == pytest.approx(drift, rel=1e-10)


def test_the_default_rule_and_a_file_know_them(tmp_path: Any) -> None:
    model, batch = Experts().double(), routed()
    memory = nscl.Memory(model, every=1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    memory.protect(optimizer)
    memory.remember([batch], forward=lambda m, b: m(*b), likelihood="gaussian")
    memory.save(tmp_path / "memory")
    again = nscl.Memory.load(tmp_path / "memory", model)
    model(*routed()).square().sum().backward()
    optimizer.step()
    assert memory.forgetting() == again.forgetting()
    assert 0 < memory.forgetting().total.relative < 1


def test_experts_that_look_alike_and_compute_something_else_are_an_error() -> None:
    class Other(Experts):
        def forward(self, *args: Tensor) -> Tensor:
            return super().forward(*args).tanh()

    with pytest.raises(FeatureError, match=r"'gate_up_proj' \(Other.gate_up_proj\) does not comp"):
        nscl.Memory.adam_nscl(Other().double()).remember([routed()], forward=lambda m, b: m(*b))


def test_experts_with_biases_are_not_known() -> None:
    class Biased(Experts):
        has_bias = True

    with pytest.raises(UnsupportedError, match=r"for 'gate_up_proj' \(Biased\), .* (unsupp|exclu)"):
        nscl.Memory.adam_nscl(Biased())
