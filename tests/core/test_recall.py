"""What the model would have answered at the last ``remember``."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nscl

X = torch.randn(6, 3, 8, 8)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5),
        nn.Flatten(), nn.Linear(144, 5),
    )  # fmt: skip


def remembered(model: nn.Module, *, exclude: tuple[str, ...] = ()) -> tuple[nscl.Memory, nn.Module]:
    memory = nscl.Memory(model, rule=nscl.Penalty(), exclude=exclude)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    memory.remember([X])
    copied = copy.deepcopy(model).eval()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn_like(X)).square().mean().backward()
        optimizer.step()
    return memory, copied


@pytest.mark.parametrize("exclude", [(), ("5",), ("0", "1")])
def test_it_equals_a_copy_made_at_remember(exclude: tuple[str, ...]) -> None:
    model = network()
    memory, copied = remembered(model, exclude=exclude)
    state, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    recalled = memory.recall(X)
    assert torch.equal(recalled, copied(X))
    assert not recalled.requires_grad
    assert not torch.equal(model(X), recalled)
    model.load_state_dict(state)
    memory.recall(X)
    assert all(map(torch.equal, state.values(), model.state_dict().values()))
    assert [m.training for m in model.modules()] == modes


def test_a_file_carries_it(tmp_path: Path) -> None:
    model = network()
    memory, copied = remembered(model, exclude=("5",))
    path = tmp_path / "memory.safetensors"
    memory.save(path)
    again = nscl.Memory.load(path, model)
    assert torch.equal(again.recall(X), copied(X))


def test_gradients_of_a_pass_under_way_stay_right() -> None:
    model = network()
    memory, _ = remembered(model)
    model.eval().zero_grad()
    loss = model(X).square().mean()
    memory.recall(X)
    loss.backward()
    found = model[0].weight.grad.clone()
    model.zero_grad()
    model(X).square().mean().backward()
    assert torch.equal(found, model[0].weight.grad)


def test_under_autocast_it_computes_as_the_model_does() -> None:
    model = network()
    memory, copied = remembered(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(memory.recall(X), copied(X))
        assert memory.recall(X).dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # dynamo looks at it itself
def test_inside_of_a_compiled_step() -> None:
    model = network()
    memory, copied = remembered(model)

    @torch.compile(backend="eager")
    def step(x: Tensor) -> Tensor:
        return model(x).sum() + memory.recall(x).sum()

    compiled = torch.compile(model, backend="eager")
    assert nscl.Memory(compiled, rule=nscl.Penalty()).model is model
    model.eval()
    assert torch.allclose(step(X), model(X).sum() + copied(X).sum())


def test_a_head_that_is_new_is_taken_as_it_is() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.heads = nn.Linear(4, 3), nn.ModuleList([nn.Linear(3, 2)])

        def forward(self, x: Tensor, head: int) -> Tensor:
            out: Tensor = self.heads[head](self.body(x))
            return out

    model, x = Heads(), torch.randn(5, 4)
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.protect(optimizer := torch.optim.SGD(model.parameters(), 0.1))
    memory.remember([x], forward=lambda m, b: m(b, 0))
    assert optimizer.param_groups
    body = copy.deepcopy(model.body)
    model.heads.append(nn.Linear(3, 2))
    with torch.no_grad():
        model.body.weight += 1
    assert torch.equal(memory.recall(x, head=1), model.heads[1](body(x)))


def test_before_anything_is_remembered_there_is_nothing_to_recall() -> None:
    with pytest.raises(nscl.NsclError, match="nothing to recall: call memory"):
        nscl.Memory(network()).recall(X)


def test_a_layer_that_is_another_by_now_is_named() -> None:
    model = network()
    memory, _ = remembered(model, exclude=("5",))
    model[5] = nn.Linear(144, 7)
    with pytest.raises(nscl.NsclError, match=r"'5.weight' .* \(5, 144\), but .* \(7, 144\)"):
        memory.recall(X)
