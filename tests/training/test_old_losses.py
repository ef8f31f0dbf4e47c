"""Losses of old tasks are logged when asked for, and looking at them changes nothing."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import nscl
from nscl.results import read_metrics
from nscl.training.config import RunConfig
from nscl.training.device import Ranks
from nscl.training.evaluation import mean_loss
from nscl.training.setup import Setup
from tests.runs import small


@pytest.mark.parametrize("method", ["finetune", "independent", "connector", "lwf"])
def test_looking_back_changes_no_number(method: str, tmp_path: Path) -> None:
    plain = nscl.run(small(method, tmp_path))
    watched = nscl.run(small(method, tmp_path, track_old_losses=2))
    assert watched.directory != plain.directory
    assert watched.accuracy == plain.accuracy
    records = list(read_metrics(tmp_path / watched.directory / "metrics.jsonl"))
    epochs = [r for r in records if r["kind"] == "epoch"]
    assert {(r["task"], len(r["old_losses"])) for r in epochs} == {(0, 1), (1, 2), (2, 2)}
    for record, ordinary in zip(
        records, read_metrics(tmp_path / plain.directory / "metrics.jsonl"), strict=True
    ):
        assert "old_losses" not in ordinary
        assert record.get("loss") == ordinary.get("loss")


def test_unasked_it_leaves_names_as_they_were() -> None:
    assert "track_old_losses" not in RunConfig(benchmark="split-digits-5").identity()


def test_the_loss_is_that_of_all_images_of_a_small_task(tmp_path: Path) -> None:
    setup = Setup.build(small("finetune", tmp_path), Ranks())
    told = mean_loss(setup.method, setup.statistics, 1, setup.loaders.glimpse(1), Ranks())
    images, labels = zip(*setup.loaders.glimpse(1), strict=True)
    assert sum(map(len, labels)) == len(setup.stream[1].train)
    logits = setup.model.eval()(torch.cat(images), 1)
    assert told == pytest.approx(
        float(F.cross_entropy(logits, torch.cat(labels)).detach()), rel=1e-5
    )
    setup.close()
