"""Started by torchrun: whole runs of several methods on a convnet; all ranks must end alike."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from nscl.results import ConfigFile, RunDirectory
from nscl.training import experiment
from nscl.training.config.schema import RunConfig
from nscl.training.display.display import Quiet
from nscl.training.process.device import Ranks
from nscl.training.process.interrupt import InterruptedRunError
from nscl.training.setup import Setup
from tests.runs import small

OPTIONS: dict[str, dict[str, Any]] = {
    "muc-mas": {"pool": "procedural", "pool_size": 60, "samples": 20},
    "gd-wild": {"pool": "procedural", "pool_size": 60, "budget": 20},
    "instaparam": {"kernels": (3, 1), "controller_width": 2, "exponent": 0.0, "ewc": 1e4},
    "ewc": {"samples": 20},
    "mas": {"samples": 20},
}
State = dict[str, Tensor]


def settings(method: str, out: Path) -> RunConfig:
    """Two tasks, augmented, with batches that two ranks cannot share evenly at their end."""
    return small(
        method,
        out,
        model={"name": "convnet", "width": 4},
        data={"first": 2, "augment": "crop-flip"},
        optim={"epochs": 2, "batch_size": 64},
        options=OPTIONS.get(method, {}),
    )


class StopSecondRank(Quiet):
    """The system takes one process only, in the middle of the second task's last epoch."""

    def step(self, place: Any, phase: Any, epochs: int, tally: Any, batches: int) -> None:
        if dist.get_rank() == 1 and (place.task, place.epoch, tally.steps) == (1, 1, 2):
            os.kill(os.getpid(), signal.SIGTERM)


def trained(config: RunConfig, display: Quiet | None = None) -> State:
    """Everything the network and the method hold at the end of a run, by name."""
    made = []

    def build(*args: Any, **options: Any) -> Setup:
        made.append(Setup.build(*args, **options))
        return made[-1]

    with patch.object(experiment, "Setup", SimpleNamespace(build=build)):
        try:
            experiment.run(config, display=display)
        finally:
            dist.barrier()  # a checkpoint is whole when the first rank is here
    method = made[0].method
    others = {name: n.state_dict() for name, n in vars(method).items() if isinstance(n, nn.Module)}
    kept = {"model": method.model.state_dict(), "kept": method.task_state(), **others}
    return dict(tensors(kept))


def tensors(kept: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors in nested plain data."""
    if isinstance(kept, Tensor):
        yield name, kept
    elif isinstance(kept, Mapping):
        for key, value in kept.items():
            yield from tensors(value, f"{name}/{key}")
    elif isinstance(kept, Sequence) and not isinstance(kept, str):
        for number, value in enumerate(kept):
            yield from tensors(value, f"{name}/{number}")


def different(mine: State) -> list[str]:
    """What another rank holds otherwise, bit for bit."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return [n for n in mine if not all(torch.equal(mine[n], theirs[n]) for theirs in everyone)]


def check_sharing(ranks: Ranks) -> None:
    """Values by hand: gradients weighted by the ranks' shares, statistics averaged."""
    both, one, none = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    both.grad = torch.tensor([4.0, 8.0]) * (1 + ranks.rank)
    one.grad = torch.ones(2) if ranks.rank else None
    ranks.average_gradients([both, one, none], share=(0.75, 0.25)[ranks.rank])
    assert (both.grad.tolist(), one.grad.tolist(), none.grad) == ([5.0, 10.0], [0.25] * 2, None)
    norm = nn.BatchNorm1d(1, momentum=1.0)
    norm.register_buffer("constant", torch.tensor([1 + ranks.rank]))
    norm(torch.tensor([[1.0], [3.0]]) if ranks.is_first else torch.tensor([[4.0], [8.0]]))
    ranks.share_buffers([norm])
    assert (norm.running_mean.item(), norm.running_var.item()) == (4.0, 5.0)  # of (2, 6), (2, 8)
    assert (norm.constant.item(), norm.num_batches_tracked.item()) == (1, 1)


def check_folder(out: Path) -> None:
    """The first rank makes it, however long that takes; the others find it whole."""
    start = RunDirectory.start

    def slow(directory: RunDirectory, new: ConfigFile) -> None:
        if dist.get_rank() == 0:
            time.sleep(0.3)
        else:
            assert directory.config_path.exists()
        start(directory, new)

    with patch.object(RunDirectory, "start", slow):
        trained(settings("frozen", out / "slow"))


def check_resuming(out: Path) -> None:
    """Stopped by a signal to one of the ranks, a run ends as if it had not been."""
    with pytest.raises(InterruptedRunError) as stopped:
        trained(settings("finetune", out / "broken"), StopSecondRank())
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    resumed = trained(settings("finetune", out / "broken"))
    truth = trained(settings("finetune", out / "whole"))
    assert [n for n, value in truth.items() if not torch.equal(value, resumed[n])] == []


def main(out: Path, methods: Sequence[str]) -> None:
    torch.set_num_threads(1)
    ranks = Ranks()
    check_sharing(ranks)
    check_folder(out)
    check_resuming(out)
    for method in methods:
        found = trained(settings(method, out))
        assert any("running_var" in name for name in found) or method == "instaparam"
        apart = different(found)
        assert not apart, f"{method}: {apart}"
    ranks.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
