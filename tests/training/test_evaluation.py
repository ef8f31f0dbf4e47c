"""Accuracy and loss of a task; measuring them changes nothing."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import nscl
from nscl.results import read_metrics
from nscl.training.config.schema import RunConfig
from nscl.training.evaluation import accuracy, mean_loss
from nscl.training.process.device import Ranks
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


def test_names_stay_unless_it_is_asked_for() -> None:
    assert "track_old_losses" not in RunConfig(benchmark="split-digits-5").identity()


def test_the_loss_is_that_of_all_images_of_a_small_task(tmp_path: Path) -> None:
    setup = Setup.build(small("finetune", tmp_path), Ranks())
    found = mean_loss(setup.method, setup.statistics, 1, setup.loaders.glimpse(1), Ranks())
    images, labels = zip(*setup.loaders.glimpse(1), strict=True)
    assert sum(map(len, labels)) == len(setup.stream[1].train)
    logits = setup.model.eval()(torch.cat(images), 1)
    assert found == pytest.approx(
        float(F.cross_entropy(logits, torch.cat(labels)).detach()), rel=1e-5
    )
    setup.close()


def test_accuracy_is_in_percent_and_the_mode_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup.build(small("finetune", tmp_path), Ranks())
    modes = []

    def first_class(images: torch.Tensor, task: int) -> torch.Tensor:
        modes.append(setup.model.training)
        return torch.tensor([[1.0, 0.0]]).expand(len(images), 2)

    monkeypatch.setattr(setup.method, "logits", first_class)
    setup.model.train()
    found = accuracy(setup.method, setup.statistics, 0, setup.loaders.test(0), Ranks())
    labels = torch.cat([labels for _, labels in setup.loaders.test(0)])
    assert found == pytest.approx(100 * float((labels == 0).double().mean()))
    assert 0 < found < 100
    assert setup.model.training
    assert not any(modes)
    setup.close()
