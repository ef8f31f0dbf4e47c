"""An epoch: its steps, stops in the middle, resuming there, and losses that are not finite."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nscl.methods.base import Batch, Outcome, Phase
from nscl.training.display.tally import Tally
from nscl.training.loop import DivergedError, EpochLoop
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.runs import small


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.build(small("finetune", tmp_path), Ranks())


def loop(setup: Setup, *, repeats: int = 1, stop: Callable[[], bool] = lambda: False) -> EpochLoop:
    phase = Phase(repeats=repeats)
    setup.method.start_task(0)
    optimizer = setup.method.optimizer(0, phase)
    return EpochLoop(setup.method, optimizer, 0, phase, Ranks(), "fp32", stop)


def test_every_image_is_seen_once_per_repeat(setup: Setup) -> None:
    batches = setup.loaders(setup.stream[0].train, purpose="test", shuffle=False)
    tally = loop(setup, repeats=2).run(batches)
    assert (tally.steps, tally.seen) == (len(batches), 2 * len(setup.stream[0].train))


def test_an_epoch_in_two_parts_is_the_same_epoch(tmp_path: Path) -> None:
    def weights(*stops: int) -> list[torch.Tensor]:
        setup = Setup.build(small("finetune", tmp_path), Ranks())
        tally = Tally()
        epoch = loop(setup, stop=lambda: tally.steps in stops)
        batches = setup.loaders(setup.stream[0].train, purpose="test")
        for _ in range(1 + len(stops)):
            assert tally.steps < len(batches)
            batches = setup.loaders(setup.stream[0].train, purpose="test")
            epoch.run(batches, done=tally.steps, tally=tally)
        assert tally.steps == len(batches)
        return [p.detach().clone() for p in setup.model.parameters()]

    at_once, in_parts = weights(), weights(3, 5)
    assert all(torch.equal(a, b) for a, b in zip(at_once, in_parts, strict=True))


def test_a_loss_that_is_not_finite_names_its_step(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(batch: Batch, phase: Phase) -> Outcome:
        logits = setup.model(batch.inputs, 0)
        return Outcome(logits.sum() * float("nan"), logits, batch.labels)

    monkeypatch.setattr(setup.method, "loss", broken)
    with pytest.raises(DivergedError, match="became nan in task 1, phase 'train', step 1: lower"):
        loop(setup).run(setup.loaders(setup.stream[0].train, purpose="test"))
