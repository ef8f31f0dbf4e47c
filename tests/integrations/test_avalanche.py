"""NullSpacePlugin under Avalanche's strategies, and under a stand-in that calls plugins as they do.

Avalanche needs torchvision, which has no build for a CPU in some places.
"""

import importlib.util
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import nscl
from nscl.integrations.avalanche import NullSpacePlugin

OPERATORS = (
    *("nms", "qnms", "roi_align", "qroi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"),
    *("_roi_align_backward", "_roi_pool_backward", "_ps_roi_align_backward"),
    *("_ps_roi_pool_backward", "deform_conv2d", "_deform_conv2d_backward"),
)

MISSING = "torchvision has no build for this torch here, so avalanche-lib is not installed"

declared: list[torch.library.Library] = []


class Data(TensorDataset):
    """An experience's data set: inputs, labels, task labels; augmented unless ``eval()``."""

    def __init__(self, x: Tensor, y: Tensor, task: int, augmented: bool = True) -> None:
        super().__init__(x, y, torch.full_like(y, task))
        self.augmented, self.task = augmented, task

    def eval(self) -> "Data":
        x, y, _ = self.tensors
        return Data(x, y, self.task, augmented=False)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        x, *others = super().__getitem__(index)
        return (x + torch.randn(8) if self.augmented else x), *others


class Strategy:
    """The order of calls in Avalanche's SupervisedTemplate, and the attributes plugins read."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        plugins: Sequence[Any],
        *,
        new_optimizer: bool = False,
    ) -> None:
        self.model, self.optimizer, self.plugins = model, optimizer, plugins
        self.train_mb_size, self.eval_mb_size, self.train_epochs = 8, 1, 6
        self.new_optimizer, self.mbatch, self.experience = new_optimizer, None, None

    def call(self, event: str) -> None:
        for plugin in self.plugins:
            if hasattr(plugin, event):
                getattr(plugin, event)(self)

    def make_optimizer(self) -> None:
        """In place, as Avalanche does: all parameters of the adapted model, no state."""
        if self.new_optimizer:
            self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.optimizer.param_groups[0]["params"] = list(self.model.parameters())
        self.optimizer.state.clear()

    def forward(self) -> Tensor:
        assert self.mbatch is not None
        answer: Tensor = self.model(self.mbatch[0], self.mbatch[-1])
        return answer

    def train(self, experience: Any) -> None:
        self.model.train()
        self.call("before_training")
        self.experience = experience
        self.make_optimizer()
        self.call("before_training_exp")
        loader = torch.utils.data.DataLoader(experience.dataset, self.train_mb_size)
        for _ in range(self.train_epochs):
            for self.mbatch in loader:
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.forward(), self.mbatch[1]).backward()
                self.optimizer.step()
        self.call("after_training_exp")
        self.call("after_training")

    def eval(self) -> None:
        self.model.eval()
        self.call("before_eval")


class TwoHeads(nn.Module):
    """Task labels choose the head of each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(32, 2), nn.Linear(32, 2)])

    def forward(self, x: Tensor, task: Tensor) -> Tensor:
        answers: Tensor = self.heads[int(task[0])](self.body(x))
        return answers


def experience(task: int, **attributes: Any) -> SimpleNamespace:
    x = torch.randn(32, 3) @ torch.randn(3, 8)
    return SimpleNamespace(dataset=Data(x, x[:, 0].gt(0).long(), task), **attributes)


def scene(plugin: NullSpacePlugin, **options: Any) -> Strategy:
    model = TwoHeads()
    return Strategy(model, torch.optim.Adam(model.parameters(), 1e-2), [plugin], **options)


@pytest.mark.parametrize("new_optimizer", [False, True])
def test_every_experience_is_remembered_and_held(new_optimizer: bool) -> None:
    plugin = NullSpacePlugin(rule=nscl.Tolerance(1e-6))
    strategy = scene(plugin, new_optimizer=new_optimizer)
    first, second = experience(0), experience(1)
    strategy.train(first)
    assert plugin.memory.tasks == 1
    x, _, task = first.dataset.tensors
    before, weights = strategy.model(x, task).detach(), strategy.model.body[0].weight.clone()
    strategy.train(second)
    assert plugin.memory.tasks == 2
    assert (strategy.model(x, task) - before).abs().max() < 1e-4
    assert (strategy.model.body[0].weight - weights).abs().max() > 0.01
    names = [layer.name for layer in plugin.memory.report().layers if layer.free is not None]
    assert names == ["body.0", "heads.0", "heads.1"]  # each by the data of its own task


def test_data_are_remembered_without_augmentation() -> None:
    plugin = NullSpacePlugin(rule=nscl.Tolerance(1e-6))
    strategy = scene(plugin)
    strategy.train(experience(0))
    assert plugin.memory.report().layers[0].free == 9 - 4  # three directions and the bias


def test_nothing_waits_when_evaluating() -> None:
    plugin = NullSpacePlugin(every=1000)
    strategy = scene(plugin)
    strategy.eval()  # before any training
    strategy.train(experience(0))
    plugin.after_training_exp = lambda strategy: None  # type: ignore[method-assign]
    strategy.train(experience(1))
    moved = strategy.model.body[0].weight.clone()
    strategy.eval()
    assert not torch.equal(strategy.model.body[0].weight, moved)


def test_parts_of_an_online_stream_are_remembered_together() -> None:
    plugin = NullSpacePlugin()
    strategy, whole = scene(plugin), experience(0)
    for last in (False, True):
        part = experience(
            0, access_task_boundaries=True, is_last_subexp=last, origin_experience=whole
        )
        strategy.train(part)
        assert plugin.memory.tasks == int(last)
    assert plugin.memory.state_dict()["metadata"]["blocks"]["body.0"]["seen"]["rows"] == 32


def test_a_head_that_grows_is_refused_unless_it_is_left_out() -> None:
    for exclude in ((), ("heads.1",)):
        strategy = scene(NullSpacePlugin(exclude=exclude))
        strategy.train(experience(1))
        strategy.model.heads[1] = nn.Linear(32, 4)  # type: ignore[operator, union-attr]
        if exclude:
            strategy.train(experience(1))
        else:
            with pytest.raises(nscl.errors.ModelMismatchError, match=r"heads.1.*Linear 2 × 32"):
                strategy.train(experience(1))


def test_a_memory_can_be_handed_over_and_is_asked_for_too_early() -> None:
    model = TwoHeads()
    memory = nscl.Memory(model)
    assert NullSpacePlugin(memory).memory is memory
    with pytest.raises(TypeError, match="takes none of every, rule"):
        NullSpacePlugin(memory, rule=nscl.Energy(0.1), every=3)
    with pytest.raises(nscl.NsclError, match="when the strategy begins to train"):
        _ = NullSpacePlugin().memory


def declare_operators() -> None:
    """Without its compiled operators torchvision cannot be imported; nothing here calls them."""
    library = torch.library.Library("torchvision", "DEF")
    for name in OPERATORS:
        library.define(f"{name}(Tensor a) -> Tensor")
    declared.append(library)
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]


def has_torchvision() -> bool:
    """What `make test-integrations` asks before it installs Avalanche."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        return False
    return True


def import_avalanche() -> Any:
    """Avalanche's strategies, or a skip with the reason."""
    if importlib.util.find_spec("avalanche") is None:
        pytest.skip("avalanche-lib is not installed" if has_torchvision() else MISSING)
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # built for CUDA, beside a torch for the CPU
        declare_operators()
    try:
        return importlib.import_module("avalanche.training.supervised")
    except (ImportError, RuntimeError) as problem:
        pytest.skip(f"avalanche-lib cannot be imported: {problem}")


def two_experiences() -> list[Any]:
    """The real thing: 32 inputs of two classes each, with task labels 0 and 1."""
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.scenarios.task_aware import with_task_labels
    from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute

    def dataset(task: int) -> Any:
        x = torch.randn(32, 3) @ torch.randn(3, 8)
        y = x[:, 0].gt(0).long()
        labels = {"targets": y.tolist(), "targets_task_labels": [task] * 32}
        attributes = [DataAttribute(v, k, use_in_getitem=k != "targets") for k, v in labels.items()]
        return AvalancheDataset([TensorDataset(x, y)], data_attributes=attributes)

    benchmark = benchmark_from_datasets(train=[dataset(0), dataset(1)])
    experiences = list(with_task_labels(benchmark).train_stream)
    for experience in experiences:
        experience.classes_in_this_experience = [0, 1]
    return experiences


@pytest.mark.filterwarnings("default")
def test_naive_of_avalanche() -> None:
    strategies = import_avalanche()
    from avalanche.models import MTSimpleMLP

    first, second = two_experiences()
    model = MTSimpleMLP(input_size=8, hidden_size=32)
    plugin = NullSpacePlugin(rule=nscl.Tolerance(1e-6))
    strategy = strategies.Naive(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 1e-2),
        train_mb_size=8,
        train_epochs=4,
        plugins=[plugin],
        evaluator=None,
    )
    strategy.train(first)
    x, task = torch.stack([item[0] for item in first.dataset.eval()]), torch.zeros(32).long()
    before = model.eval()(x, task).detach()
    strategy.train(second)
    assert plugin.memory.tasks == 2
    assert (model.eval()(x, task) - before)[:, :2].abs().max() < 1e-4
