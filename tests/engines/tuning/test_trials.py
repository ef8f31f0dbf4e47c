"""What a tuning varies and on which stream, and adopted values."""

from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from nscl.cli.many_runs.tune import tune
from nscl.engines.tuning.trials import TRIALS, axes_of, chosen_settings, job_of, tuning_settings
from nscl.errors import NsclError
from nscl.methods import METHODS
from nscl.methods.registry import load_method
from nscl.training.config import tuned_values
from nscl.training.config.build import build_config

RATE = "optim.later_lr"
REFERENCES = {"joint", "independent", "frozen"}  # no task has a rate of later tasks, or no backbone


@pytest.mark.parametrize("method", [name for name in METHODS if name not in REFERENCES])
def test_every_method_has_the_same_rates_and_its_own_strengths(method: str) -> None:
    rate, *strengths = axes_of(method, "split-digits-5", {}, trials=TRIALS)
    assert (rate.name, rate.values, rate.is_rate) == (RATE, (1e-3, 3.2e-3, 1e-2), True)
    assert {axis.name for axis in strengths} == set(load_method(method).tuning)
    assert len(strengths) <= 2
    for axis in strengths:
        assert list(axis.values) == sorted(axis.values)
        for value in axis.values:  # each is an option, and a value that the method takes
            build_config(
                "split-digits-5", {"method": method, **chosen_settings({axis.name: value})}
            )
    assert signature(tune).parameters["trials"].default == TRIALS


def test_references_have_nothing_to_tune() -> None:
    for method in REFERENCES:
        with pytest.raises(NsclError, match="there is nothing to tune"):
            axes_of(method, "split-digits-5", {}, trials=TRIALS)
    assert [a.name for a in axes_of("finetune", "split-digits-5", {}, trials=3)] == [RATE]


@pytest.mark.parametrize(("trials", "rates"), [(7, 3), (6, 3), (5, 2), (4, 2), (3, 1), (1, 1)])
def test_few_trials_have_fewer_rates(trials: int, rates: int) -> None:
    rate, _ = axes_of("lwf", "split-digits-5", {}, trials=trials)
    assert len(rate.values) == rates
    assert rate.values[-1] == 1e-2  # the first task's is always among them


def test_a_rate_that_is_given_is_not_varied() -> None:
    given = {"optim": {"later_lr": 1e-3}}
    assert [axis.name for axis in axes_of("lwf", "split-digits-5", given, trials=7)] == ["strength"]


@pytest.mark.parametrize(
    ("method", "options", "varied"),
    [
        ("owm", {}, {"alpha"}),
        ("owm", {"mode": "online"}, {"online_alpha"}),
        ("adam-nscl", {"rule": "ridge"}, {"alpha"}),
        ("adam-nscl", {"rule": "energy"}, {"share"}),
        ("connector", {"rule": "ridge"}, {"alpha", "feature_coef"}),
        ("connector", {"rule": "tolerance"}, {"feature_coef"}),
        ("adns", {"head_epochs": 0}, {"a_core"}),
    ],
)
def test_only_what_counts_is_varied(method: str, options: dict[str, Any], varied: set[str]) -> None:
    _, *strengths = axes_of(method, "split-digits-5", {"options": options}, trials=9)
    assert {axis.name for axis in strengths} == varied


def test_trials_see_other_classes_and_no_test_data() -> None:
    settings = tuning_settings("split-cifar100-10", {})
    given = {"seed": 0, "side_by_side": 1}
    job = job_of("lwf", "split-cifar100-10", {"strength": 3.0, RATE: 1e-3}, settings, **given)
    data = job.config.data
    assert (data.order, data.order_seed, data.first, data.holdout) == ("random", 1, 5, 0.1)
    assert job.config.options["strength"] == 3.0
    assert job.config.optim.later_lr == 1e-3
    short = tuning_settings("split-digits-5", {"data": {"tasks": 2}})
    assert short["data"]["first"] == 2


def test_adopted_values_are_the_presets_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_values, "FOLDER", tmp_path / "tuned")
    before = build_config("split-cifar100-10", {"method": "gpm", "preset": "cpu"})
    for method, value in (("gpm", 0.91), ("adam-nscl", 77.0)):
        name = next(iter(load_method(method).tuning))
        tuned_values.adopt(
            "split-cifar100-10",
            "cpu-2",
            method,
            settings={"options": {name: value}},
            trials=f"experiments/tuned/split-cifar100-10-cpu-2/{method}.json",
        )
    after = build_config("split-cifar100-10", {"method": "gpm", "preset": "cpu"})
    assert after.options["threshold"] == 0.91 != before.options["threshold"]
    assert after.optim == before.optim
    nscl = build_config("split-cifar100-10", {"method": "adam-nscl", "preset": "cpu"})
    assert nscl.options["a"] == 77.0
    overrides = {"method": "gpm", "preset": "cpu", "options": {"threshold": 0.5}}
    assert build_config("split-cifar100-10", overrides).options["threshold"] == 0.5
    for other in (
        build_config("split-cifar100-20", {"method": "gpm", "preset": "cpu"}),
        build_config("split-cifar100-10", {"method": "gpm", "preset": "paper"}),
    ):
        assert other.options["threshold"] == before.options["threshold"]
    tuned_values._read.cache_clear()


def test_adopted_files_of_the_package_name_known_methods_and_options() -> None:
    for path in tuned_values.FOLDER.glob("*.json"):
        for preset, methods in tuned_values._read(path).items():
            assert preset in tuned_values.ADOPTED
            for method in methods:
                build_config(path.stem, {"method": method, "preset": preset})
