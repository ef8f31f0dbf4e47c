"""The library's own method: its loss, what moves when, resuming, and how it stands beside LwF."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nscl.methods.base import Phase
from nscl.methods.projection.nscl import NSCL
from nscl.training.experiment import run
from nscl.training.process.interrupt import InterruptedRunError
from tests.methods.setups import batch_of, frozen, made, moved, train
from tests.quick_runs import QuickRuns
from tests.runs import AtStep, small


def nscl(tmp_path: Path, **given: Any) -> tuple[Any, NSCL]:
    setup = made("nscl", tmp_path, **given)
    assert isinstance(setup.method, NSCL)
    return setup, setup.method


def test_the_loss_is_the_one_written_out(tmp_path: Path) -> None:
    setup, method = nscl(tmp_path, options={"kd": 0.7, "temperature": 3.0})
    train(setup, 0, Phase())
    method.end_task(0)
    before = frozen(setup.model.state_dict())
    train(setup, 1, Phase())
    batch = batch_of(setup, 1)
    found = method.loss(batch, Phase()).loss.item()
    with torch.no_grad():
        truth = F.cross_entropy(setup.model(batch.images, 1), batch.labels)
        answer = (setup.model(batch.images, 0) / 3).log_softmax(1)
        setup.model.load_state_dict(before)
        target = (setup.model.eval()(batch.images, 0) / 3).softmax(1)
        truth += 0.7 * F.kl_div(answer, target, reduction="batchmean")
    assert found == pytest.approx(truth.item(), rel=1e-5)


def test_only_the_new_head_moves_while_it_warms_up(tmp_path: Path) -> None:
    setup, method = nscl(tmp_path)
    train(setup, 0, Phase())
    method.end_task(0)
    assert [phase.name for phase in method.phases(0)] == ["train"]
    warmup, whole = method.phases(1)
    before = frozen(setup.model.state_dict())
    train(setup, 1, warmup)
    assert moved(before, setup.model.state_dict()) == {"heads.1.weight", "heads.1.bias"}
    before = frozen(setup.model.state_dict())
    train(setup, 1, whole)
    changed = moved(before, setup.model.state_dict())
    assert not any(name.startswith("heads.0") for name in changed)
    assert any(name.startswith("backbone") for name in changed)


def test_it_stops_in_the_middle_of_every_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    options = {"every": 7}
    whole = run(small("nscl", tmp_path / "whole", options=options))
    # In the third quarter: a task is learned after others, some steps into an epoch.
    stop = AtStep(whole.steps * 5 // 8 + 2, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(InterruptedRunError):
        run(small("nscl", tmp_path / "broken", options=options), display=stop)
    resumed = run(small("nscl", tmp_path / "broken", options=options))
    assert resumed.accuracy == whole.accuracy
    logs = [next((tmp_path / name).rglob("metrics.jsonl")) for name in ("whole", "broken")]
    drifts = [
        [line.get("method/drift") for line in map(json.loads, log.read_text().splitlines())]
        for log in logs
    ]
    assert drifts[0] == drifts[1]


def test_beside_lwf_and_fine_tuning(quick_runs: QuickRuns) -> None:
    for seed in (0, 1):
        ours, lwf, plain = (quick_runs(name, seed) for name in ("nscl", "lwf", "finetune"))
        assert ours.acc >= lwf.acc - 1
        assert ours.bwt >= plain.bwt / 5
        assert ours.acc > quick_runs("adam-nscl", seed).acc
