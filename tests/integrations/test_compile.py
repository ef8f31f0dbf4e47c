"""torch.compile with its default backend, inductor: a compiled model, a compiled step, or both."""

import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

import nscl

pytestmark = [
    pytest.mark.skipif(
        not any(map(shutil.which, ("g++", "clang++", "c++"))),
        reason="inductor needs a C++ compiler",
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

Step = Callable[[], object]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def trained(
    *, model_compiled: bool, step_compiled: bool, **options: object
) -> tuple[nn.Module, Tensor, Tensor]:
    """A network after six steps, the old data and what it answered to them before."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 2))
    run = torch.compile(network) if model_compiled else network
    optimizer = torch.optim.AdamW(run.parameters(), 1e-2)
    memory = nscl.Memory(run, **options)  # type: ignore[arg-type]
    memory.protect(optimizer)
    old, new = torch.randn(4, 8), torch.randn(32, 8)
    labels = new[:, 0].gt(0).long()
    memory.remember([old])
    before = network(old).detach()
    step: Step = torch.compile(optimizer.step) if step_compiled else optimizer.step
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(run(new), labels).backward()
        step()
    memory.flush()
    return network, old, before


@pytest.mark.parametrize(
    ("model_compiled", "step_compiled"), [(True, False), (False, True), (True, True)]
)
def test_old_outputs_stay(model_compiled: bool, step_compiled: bool) -> None:
    network, old, before = trained(
        model_compiled=model_compiled,
        step_compiled=step_compiled,
        rule=nscl.Tolerance(1e-6),
        norms="freeze",
    )
    assert (network(old) - before).abs().max() < 1e-5
    free, *_ = trained(model_compiled=False, step_compiled=False, rule=nscl.Ratio(1e9))
    assert (free(old) - before).abs().max() > 1e-2  # what six steps do that nothing holds


@pytest.mark.parametrize("options", [{"rule": nscl.Tolerance(1e-6)}, {"every": 4}])
def test_compiled_training_equals_eager_training(options: dict[str, object]) -> None:
    compiled, *_ = trained(model_compiled=True, step_compiled=True, **options)
    eager, *_ = trained(model_compiled=False, step_compiled=False, **options)
    for one, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
