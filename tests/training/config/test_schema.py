"""The name of a run, the rate of an epoch, and a help text for every setting."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from nscl.training.config.build import build_config
from nscl.training.config.schema import ConfigError, Optim, RunConfig


def test_where_a_run_happens_does_not_change_its_name() -> None:
    here = build_config("split-digits-5", {})
    there = build_config(
        "split-digits-5", {"threads": 2, "device": "cpu", "out": "/elsewhere", "data_dir": "/data"}
    )
    called = build_config("split-digits-5", {"label": "as it is"})
    assert here.run_name == there.run_name == called.run_name
    assert "label" not in here.place()
    assert here.run_name != build_config("split-digits-5", {"seed": 1}).run_name


def test_rates_halve_at_the_milestones() -> None:
    optim = Optim(milestones=(30, 60), gamma=0.5)
    assert [optim.factor(e) for e in (0, 29, 30, 59, 60, 79)] == [1, 1, 0.5, 0.5, 0.25, 0.25]


def settings_of(part: type[BaseModel], path: str = "") -> Iterator[tuple[str, str | None]]:
    for name, field in part.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from settings_of(kind, f"{path}{name}.")
        else:
            yield path + name, field.description


def test_every_setting_is_explained_in_words_of_its_own() -> None:
    """They are what `nscl run --help` says."""
    texts = dict(settings_of(RunConfig))
    assert len(texts) > 30
    assert [name for name, text in texts.items() if not text] == []
    assert len(set(texts.values())) == len(texts)


def test_rates_that_are_not_given_are_the_first_tasks() -> None:
    plain, own = Optim(lr=0.5), Optim(lr=0.5, later_lr=0.1, head_lr=0.2, norm_lr=0.3)
    assert (plain.backbone_lr(1), plain.heads_lr, plain.norms_lr) == (0.5, 0.5, 0.5)
    assert [own.backbone_lr(task) for task in (0, 1)] == [0.5, 0.1]
    assert (own.heads_lr, own.norms_lr) == (0.2, 0.3)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_known_devices(device: str) -> None:
    assert RunConfig(benchmark="x", device=device).device == device


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="option 'device': device must be auto"):
        RunConfig(benchmark="x", device="tpu")


def test_settings_that_nobody_gave_are_not_in_the_name() -> None:
    """Runs that were made before there were such settings keep their names."""
    plain = build_config("split-digits-5", {})
    for table, name, value in (
        ("optim", "first_epochs", 3),
        ("data", "holdout", 0.1),
        ("model", "stem_stride", 2),
    ):
        assert name not in plain.identity()[table]
        asked = build_config("split-digits-5", {table: {name: value}})
        assert asked.identity()[table][name] == value
        assert asked.run_name != plain.run_name


def test_the_first_task_may_have_more_epochs() -> None:
    plain, longer = Optim(epochs=4), Optim(epochs=4, first_epochs=20)
    assert [plain.epochs_of(task) for task in (0, 1)] == [4, 4]
    assert [longer.epochs_of(task) for task in (0, 1)] == [20, 4]
    assert [longer.epochs_before(place) for place in (0.0, 0.5, 1.0, 1.5, 3.0)] == [
        *(0, 10, 20),
        *(22, 28),
    ]
