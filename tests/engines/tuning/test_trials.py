"""The budget and the grid of trials, and adopted values."""

import math
from inspect import signature
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.cli.many_runs.tune import tune
from nscl.engines.tuning.trials import TRIALS, best_sizes, points, thin, trials_of, tuning_plan
from nscl.methods import METHODS
from nscl.methods.registry import load_method
from nscl.training.config import tuned_values
from nscl.training.config.build import build_config

sizes = st.lists(st.integers(1, 7), min_size=1, max_size=2)


@given(sizes, st.integers(1, 30))
def test_the_budget_is_kept_and_used(sizes: list[int], budget: int) -> None:
    chosen = best_sizes(sizes, budget)
    assert all(1 <= n <= size for n, size in zip(chosen, sizes, strict=True))
    possible = [math.prod(n) for n in product(*(range(1, s + 1) for s in sizes))]
    assert math.prod(chosen) == max(n for n in possible if n <= budget)


@given(st.integers(1, 12), st.data())
def test_thinning_is_even_and_keeps_both_ends(size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, size))
    values = [float(i) for i in range(size)]
    kept = thin(values, count)
    assert len(kept) == count
    assert kept == sorted(set(kept))
    if count > 1:
        assert kept[0] == values[0]
        assert kept[-1] == values[-1]
        gaps = [b - a for a, b in pairwise(kept)]
        assert max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("method", METHODS)
def test_declared_strengths_are_options_and_fit_the_budget(method: str) -> None:
    assert len(load_method(method).tuning) <= 2
    found = trials_of(method)
    assert len(trials_of(method, trials=6)) <= 6
    assert len(found) == (3 if load_method(method).tuning else 0)  # the same budget for all
    assert signature(tune).parameters["trials"].default == TRIALS
    assert len({trial.variant.label for trial in found}) == len(found)
    for job in tuning_plan("split-digits-5", found, {}).jobs():
        assert job.config.data.order == "random"
        assert (job.config.data.order_seed, job.config.data.first) == (1, 3)


def test_short_streams_are_tried_as_a_whole() -> None:
    (trial, *_) = trials_of("gpm")
    plan = tuning_plan("split-digits-5", [trial], {"data": {"tasks": 2}})
    assert plan.jobs()[0].config.data.first == 2


def test_the_learning_rate_is_nobodys_own() -> None:
    """Trials of one method differ in nothing but the declared strengths."""
    for method in METHODS:
        names = set(load_method(method).tuning)
        jobs = tuning_plan("split-digits-5", trials_of(method), {}).jobs()
        plain = [
            job.config.model_copy(
                update={"options": {k: v for k, v in job.config.options.items() if k not in names}}
            )
            for job in jobs
        ]
        assert all(config == plain[0] for config in plain)


def test_adopted_values_are_the_presets_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_values, "FOLDER", tmp_path / "tuned")
    before = build_config("split-cifar100-10", {"method": "gpm", "preset": "cpu"})
    for method, value in (("gpm", 0.91), ("adam-nscl", 77.0)):
        name = next(iter(points(method)[0]))
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
