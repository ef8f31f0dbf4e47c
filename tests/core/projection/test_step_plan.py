"""Which parameters a step may move, and how: frozen, split, shared, sparse, half, in any layout."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.errors import ModelMismatchError
from tests.core.protected_scene import EXACT, mlp, new_data, protected_scene, sgd, values


def truth(weight: Tensor, rows: Tensor) -> Tensor:
    """The orthogonal projection of displacements onto what ``rows`` never use, densely."""
    return weight - weight @ torch.linalg.pinv(rows) @ rows


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_a_frozen_bias_stays_and_its_weight_is_projected_alone(acts_on: str) -> None:
    model = nn.Sequential(nn.Linear(6, 5)).double()
    bias = model[0].bias.requires_grad_(False)
    kept, start = bias.detach().clone(), model[0].weight.detach().clone()
    scene = protected_scene(lambda p: torch.optim.SGD(p, 0.1), model=model, acts_on=acts_on)
    scene.optimizer.add_param_group({"params": [bias]})
    scene.backward()
    step = -0.1 * model[0].weight.grad
    scene.optimizer.step()
    assert torch.equal(bias, kept)
    expected = truth(step, scene.old)
    torch.testing.assert_close(model[0].weight - start, expected, rtol=0, atol=1e-12)
    assert scene.moved() < 1e-12


def test_a_bias_frozen_between_steps_stays_where_it_is() -> None:
    scene = protected_scene()
    scene.train()
    bias = scene.model[0].bias.requires_grad_(False)
    scene.optimizer.zero_grad()
    kept = bias.detach().clone()
    scene.train()
    assert torch.equal(bias, kept)
    bias.requires_grad_(True)
    scene.train()
    assert not torch.equal(bias, kept)
    assert scene.moved() < 1e-12


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_what_is_frozen_but_still_moved_by_the_optimizer_is_protected(part: str) -> None:
    # Momentum and weight decay move whatever has a gradient, were it zero.
    scene = protected_scene()
    scene.train()
    parameter = getattr(scene.model[0], part).requires_grad_(False)
    before = parameter.detach().clone()
    scene.optimizer.zero_grad(set_to_none=False)
    scene.optimizer.step()
    assert not torch.equal(parameter, before)
    assert scene.moved() < 1e-12


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_training_biases_only_moves_none_of_those_remembered(acts_on: str) -> None:
    model = mlp()
    for name, p in model.named_parameters():
        p.requires_grad_(name.endswith("bias"))
    scene = protected_scene(model=model, acts_on=acts_on)
    model.append(nn.Linear(3, 2).double())
    scene.optimizer.add_param_group({"params": model[3].parameters()})
    before = values(model)
    scene.train()
    after = values(model)
    assert all(torch.equal(after[n], before[n]) for n in ("0.bias", "2.bias"))
    assert not torch.equal(after["3.bias"], before["3.bias"])


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_a_weight_and_its_bias_in_two_optimizers(acts_on: str) -> None:
    model, old = mlp(), torch.randn(3, 6, dtype=torch.float64)
    memory = nscl.Memory(model, rule=EXACT, acts_on=acts_on)
    weights, biases = sgd([model[0].weight, *model[2].parameters()]), sgd([model[0].bias])
    memory.protect(weights)
    memory.protect(biases)
    memory.remember([old])
    before, start = model(old).detach(), values(model)
    for _ in range(3):
        model.zero_grad()
        model(new_data(old)).square().mean().backward()
        weights.step()
        biases.step()
    assert (model(old) - before).abs().max() < 1e-12
    assert torch.equal(model[0].bias, start["0.bias"])
    assert not torch.equal(model[0].weight, start["0.weight"])


class CrossAttention(nn.Module):
    """Separate projections with biases in one parameter."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        other = x[..., : self.attention.kdim]
        return self.attention(x, other, other)[0]


@pytest.mark.parametrize("options", [{"kdim": 3, "vdim": 3}, {}])
@pytest.mark.parametrize("frozen", ["k_proj_weight", "out_proj.weight", "in_proj_bias"])
def test_attention_with_a_part_frozen(frozen: str, options: dict[str, int]) -> None:
    model = CrossAttention(**options).double()
    parameters = dict(model.attention.named_parameters())
    if frozen not in parameters:
        frozen = "in_proj_weight"
    parameters[frozen].requires_grad_(False)
    # Constant keys and values leave the biases of all projections something to lean on.
    old = torch.randn(1, 2, 4, dtype=torch.float64).expand(2, 2, 4)
    scene = protected_scene(model=model, old=old)
    before = values(model.attention)
    scene.train()
    assert scene.moved() < 1e-12
    after = values(model.attention)
    assert torch.equal(after[frozen], before[frozen])
    moving = [name for name in after if not torch.equal(after[name], before[name])]
    assert any(name.endswith("weight") for name in moving)
    if frozen == "k_proj_weight":
        size = model.attention.embed_dim
        bias = after["in_proj_bias"] - before["in_proj_bias"]
        assert bias[size : 2 * size].abs().max() == 0.0  # the frozen third
        assert bias[:size].abs().max() > 0.0


class Language(nn.Module):
    """An embedding with sparse gradients, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, sparse=True)
        self.middle = nn.Linear(4, 4)
        self.out = nn.Linear(4, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(torch.tanh(self.middle(self.embedding(tokens))))


def train_on_tokens(model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    for _ in range(3):
        model.zero_grad()
        model(torch.arange(7)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()


def test_sparse_gradients_of_an_embedding() -> None:
    model = Language().double()
    tokens = torch.tensor([0, 1, 2])
    memory = nscl.Memory(model, rule=EXACT)
    sparse = torch.optim.SparseAdam(model.embedding.parameters(), 1e-2)
    dense = sgd([*model.middle.parameters(), *model.out.parameters()])
    memory.protect(sparse)
    memory.protect(dense)
    memory.remember([tokens])
    before, start = model(tokens).detach(), model.embedding.weight.detach().clone()
    train_on_tokens(model, sparse, dense)
    assert model.embedding.weight.grad.is_sparse
    assert (model(tokens) - before).abs().max() < 1e-12
    moved = (model.embedding.weight - start).abs().amax(1)
    assert (moved[:3] == 0).all()
    assert (moved[3:] > 0).all()


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2),
        nn.Flatten(),
        nn.Linear(64, 2),
    )


def test_channels_last_weights_are_projected_like_others() -> None:
    model = convolutions().double()
    old, results = torch.randn(1, 4, 2, 2, dtype=torch.float64), []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(1)
        scene = protected_scene(
            model=copy.deepcopy(model).to(memory_format=memory_format),
            old=old.to(memory_format=memory_format),
        )
        scene.train()
        assert scene.model[0].weight.is_contiguous(memory_format=memory_format)
        assert scene.moved() < 1e-11
        results.append(values(scene.model))
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_half_precision_is_as_exact_as_its_parameters(dtype: torch.dtype, acts_on: str) -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)
    old = torch.randn(3, 6).to(dtype)
    scene = protected_scene(
        lambda p: torch.optim.SGD(p, 0.5), model=model, old=old, rule=nscl.Tolerance(1e-3),
        acts_on=acts_on,
    )  # fmt: skip
    start = values(model)
    scene.train(5)
    assert all(p.dtype == dtype for p in model.parameters())
    eps = torch.finfo(dtype).eps
    assert scene.moved() < 10 * eps
    free = max((values(model)[n] - start[n]).abs().max() for n in start)
    assert free > 20 * eps


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_changing_precision_between_steps(acts_on: str) -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3))
    scene = protected_scene(
        lambda p: torch.optim.SGD(p, 0.1),
        model=model,
        old=torch.randn(3, 6),
        rule=nscl.Tolerance(1e-6),
        acts_on=acts_on,
    )
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model.to(dtype)
        scene.old = scene.old.to(dtype)
        scene.before = model(scene.old).detach()
        start = values(model)["0.weight"]
        scene.train()
        assert scene.moved() < max(1e-6, 10 * torch.finfo(dtype).eps)
        assert not torch.equal(values(model)["0.weight"], start)


def test_a_parameter_replaced_in_the_model_is_found_again() -> None:
    scene = protected_scene()
    layer = scene.model[0]
    layer.weight = nn.Parameter(layer.weight.detach().clone())
    scene.optimizer.param_groups[0]["params"][0] = layer.weight
    before = layer.weight.detach().clone()
    scene.train()
    assert scene.moved() < 1e-12
    assert not torch.equal(layer.weight, before)


def test_a_remembered_layer_that_is_gone_stops_the_step_before_it_moves() -> None:
    scene = protected_scene()
    scene.train()
    layer, scene.model[0] = scene.model[0], nn.Identity()
    before = layer.weight.detach().clone()
    with pytest.raises(ModelMismatchError, match="'0'"):
        scene.optimizer.step()
    assert torch.equal(layer.weight, before)
