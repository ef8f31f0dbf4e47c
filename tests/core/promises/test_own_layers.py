"""``register_layer``: a layer type of one's own is compared with its output and then protected."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.model import layer_types as layers
from nscl.core.model.layer_types import register_layer
from nscl.errors import FeatureError, UnsupportedError
from tests.core.memories import covariance
from tests.core.model.tying import protected_training

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


class Scaled(nn.Linear):
    def forward(self, x: Tensor, by: float = 2.0) -> Tensor:
        return super().forward(by * x)


class Kernel(nn.Module):
    """Names of its own, one row without leading dimensions, a bias that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(2, 3, 2))
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.kernel.flatten(1) @ x + self.offset


@pytest.fixture
def fresh_types(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(layers, "_TYPES", dict(layers._TYPES))
    return


@pytest.mark.usefixtures("fresh_types")
def test_an_own_type_is_taught_and_protected() -> None:
    model = nn.Sequential(Scaled(6, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    with pytest.raises(UnsupportedError, match=r"'0.weight' \(Scaled\), '0.bias' \(Scaled\)"):
        nscl.Memory.adam_nscl(model)

    @register_layer(Scaled)
    def rows(module: Scaled, x: Tensor, by: float = 2.0) -> Tensor:
        return by * x

    old = normal(2, 6)[torch.arange(8) % 2]
    before = model(old).detach()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-12))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    memory.protect(optimizer)
    memory.remember([old])
    assert (covariance(memory, "0")[0, :6, :6] - 4 * old.mT @ old / 8).abs().max() < 1e-13
    for _ in range(10):
        optimizer.zero_grad()
        model(normal(9, 6)).square().sum().backward()
        optimizer.step()
    assert (model(old) - before).abs().max() < 1e-10
    assert not torch.equal(model(normal(1, 6)), before[:1])


@pytest.mark.usefixtures("fresh_types")
def test_an_own_type_with_names_of_its_own() -> None:
    @register_layer(Kernel, weight="kernel", bias="offset")
    def rows(module: Kernel, x: Tensor) -> Tensor:
        return x

    model = Kernel().double()
    memory, x = nscl.Memory.adam_nscl(model), normal(6)
    memory.remember([x])
    assert (covariance(memory, "model")[0] - torch.outer(x, x)).abs().max() < 1e-14
    assert memory.report().layers[0].features == 6  # a buffer is no bias


@pytest.mark.usefixtures("fresh_types")
def test_rows_that_do_not_fit_the_weight_are_named() -> None:
    @register_layer(Scaled)
    def rows(module: Scaled, x: Tensor) -> Tensor:
        return x[..., :2]

    memory = nscl.Memory.adam_nscl(nn.Sequential(Scaled(3, 3)))
    with pytest.raises(FeatureError, match=r"'0' was given rows of 2 features.*register_layer"):
        memory.remember([torch.randn(2, 3)])
    assert memory.tasks == 0


class Mixing(nn.Module):
    """A square weight that is stored the other way round."""

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


@pytest.mark.usefixtures("fresh_types")
def test_a_weight_stored_the_other_way_round_is_protected_as_such() -> None:
    register_layer(Mixing, transposed=True)(lambda module, x: x)
    model, old = nn.Sequential(Mixing(), nn.Tanh(), nn.Linear(6, 2)).double(), normal(2, 6)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-12))
    memory.remember([old])
    before = model(old).detach()
    protected_training(model, memory, normal(9, 6))
    assert (model(old) - before).abs().max() < 1e-12


@pytest.mark.usefixtures("fresh_types")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_wrong_function_is_an_error_that_names_the_layer(dtype: torch.dtype) -> None:
    model, x = nn.Sequential(nn.Linear(6, 6), Mixing()).to(dtype), torch.randn(5, 6, dtype=dtype)
    rows: Any
    for rows, transposed in ((lambda m, x: x, False), (lambda m, x: 1.2 * x, True)):
        register_layer(Mixing, transposed=transposed)(rows)
        memory = nscl.Memory.adam_nscl(model)
        message = r"layer '1' \(Mixing\) does not compute rows @ weight.T.*exclude=\['1'\]"
        with pytest.raises(FeatureError, match=message):
            memory.remember([x])
        assert memory.tasks == 0
    register_layer(Mixing, transposed=True)(lambda m, x: x)
    assert nscl.Memory.adam_nscl(model).remember([x]).layers[1].protected_by == "null space"


@pytest.mark.usefixtures("fresh_types")
def test_what_follows_the_product_can_be_left_uncompared() -> None:
    class Rectified(Mixing):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu()

    register_layer(Rectified, transposed=True)(lambda module, x: x)
    model, x = Rectified(), torch.randn(5, 6)
    with pytest.raises(FeatureError, match="check=False if it computes more after the product"):
        nscl.Memory.adam_nscl(model).remember([x])
    register_layer(Rectified, transposed=True, check=False)(lambda module, x: x)
    assert nscl.Memory.adam_nscl(model).remember([x]).tasks == 1


@pytest.mark.usefixtures("fresh_types")
def test_a_layer_is_compared_once_in_a_pass() -> None:
    register_layer(Mixing, transposed=True)(lambda module, x: x)
    kind, compared = layers._TYPES[Mixing], []

    def output(*args: Any) -> Tensor:
        compared.append(args)
        return kind.output(*args)  # type: ignore[misc]

    layers._TYPES[Mixing] = replace(kind, output=output)
    memory = nscl.Memory.adam_nscl(Mixing())
    memory.remember([torch.randn(5, 6) for _ in range(4)])
    memory.remember([torch.randn(5, 6)])
    assert len(compared) == 2


def test_only_modules_can_be_registered() -> None:
    with pytest.raises(TypeError, match=r"subclass of torch\.nn\.Module"):
        register_layer(dict)  # type: ignore[arg-type]
