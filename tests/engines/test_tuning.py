"""The budget, the grid, the choice, its record and its adoption."""

import math
from inspect import signature
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.cli.tune_command import tune
from nscl.engines.job import ended_before
from nscl.engines.tune import Tuning
from nscl.engines.tuned_file import TrialRecord, Tuned, best_trial, known_trials
from nscl.engines.tuning import TRIALS, best_sizes, points, thin, trials_of, tuning_plan
from nscl.errors import NsclError
from nscl.methods import METHODS
from nscl.methods.registry import load_method
from nscl.results import read_metrics
from nscl.training import tuned_values
from nscl.training.experiment import run
from nscl.training.prepare import build_config
from tests.engines.jobs import finish

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
def test_only_what_counts_is_varied(
    tmp_path: Path, method: str, options: dict[str, object], varied: set[str]
) -> None:
    said = {"options": options, "data": {"first": 2}, "optim": {"epochs": 1}, "threads": 1}
    made = Tuning.prepare(
        method, "split-digits-5", {**said, "out": tmp_path}, root=tmp_path, trials=9
    )
    assert {name for trial in made.trials for name in trial.point} == varied
    for job in made.jobs:
        assert options.items() <= job.config.options.items()


def test_the_online_strength_of_owm_trains_differently(tmp_path: Path) -> None:
    short = {"data": {"first": 1}, "optim": {"epochs": 2}, "threads": 1, "out": tmp_path}
    said = {"options": {"mode": "online"}, **short}
    made = Tuning.prepare("owm", "split-digits-5", said, root=tmp_path / "tuned", trials=2)
    for job in made.jobs:
        run(job.config)
    records = [read_metrics(job.directory.metrics_path) for job in made.jobs]
    first, second = ([r["loss"] for r in some if r["kind"] == "epoch"] for some in records)
    assert first != second
    tuned = made.conclude({})
    assert tuned is not None
    assert tuned.protocol["options"] == {"mode": "online"}
    with pytest.raises(NsclError, match=r"--adopt goes without --method\.mode online"):
        made.adopt(tuned)


@pytest.mark.parametrize(
    ("method", "said", "message"),
    [
        ("adam-nscl", {"options": {"rule": "tolerance"}}, "no strength to tune with --method.rule"),
        ("adam-nscl", {"options": {"a": 3}}, "--method.a 3: that is what tune varies"),
        ("gpm", {"data": {"order": "natural"}}, "--data.order natural would choose on the very"),
    ],
)
def test_trials_that_choose_nothing_are_refused(
    tmp_path: Path, method: str, said: dict[str, object], message: str
) -> None:
    with pytest.raises(NsclError, match=message):
        Tuning.prepare(method, "split-digits-5", said, root=tmp_path)


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


def test_a_damaged_result_of_a_trial_is_no_answer(tmp_path: Path) -> None:
    said = {"preset": "quick", "out": tmp_path}
    made = Tuning.prepare("gpm", "split-digits-5", said, root=tmp_path / "records", trials=2)
    for job in made.jobs:
        finish(job, [[90.0]], 1.0)
    made.jobs[0].directory.result_path.write_text("{")
    endings = {job.name: ended_before(job) for job in made.jobs}
    assert made.conclude(endings) is None
    assert not made.path.exists()


def trial(run: str, acc: float | None, bwt: float | None = -1.0) -> TrialRecord:
    return TrialRecord(run, {"a": 1.0}, acc, bwt if acc is not None else None, 1.0)


def test_best_acc_then_bwt_then_first() -> None:
    trials = [trial("w", 70.0), trial("x", 80.0, -2.0), trial("y", 80.0), trial("z", 80.0)]
    assert best_trial([trial("broken", None), *trials]) == trials[2]
    assert best_trial([trial("broken", None)]) is None


def test_a_record_of_other_trials_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "gpm.json"
    record = Tuned("b", "cpu", "gpm", {"options": {"a": 1.0}}, (trial("r1", 70.0),))
    record.write(path)
    assert Tuned.read(path) == record
    assert set(known_trials(path, {"r1", "r2"}, force=False)) == {"r1"}
    with pytest.raises(NsclError, match="--force"):
        known_trials(path, {"r2"}, force=False)
    assert known_trials(path, {"r2"}, force=True) == {}
    path.write_text('{"schema": 1, "trials": [{"nothing": 1}]}')
    with pytest.raises(NsclError, match="no record of a tuning"):
        Tuned.read(path)


def test_adopted_values_are_the_presets_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_values, "FOLDER", tmp_path / "tuned")
    before = build_config("split-cifar100-10", {"method": "gpm", "preset": "cpu"})
    for method, value in (("gpm", 0.91), ("adam-nscl", 77.0)):
        name = next(iter(points(method)[0]))
        tuned_values.adopt(
            "split-cifar100-10",
            "cpu",
            method,
            settings={"options": {name: value}},
            trials=f"experiments/tuned/split-cifar100-10-cpu/{method}.json",
        )
    after = build_config("split-cifar100-10", {"method": "gpm", "preset": "cpu"})
    assert after.options["threshold"] == 0.91 != before.options["threshold"]
    assert after.optim == before.optim
    nscl = build_config("split-cifar100-10", {"method": "adam-nscl", "preset": "cpu"})
    assert nscl.options["a"] == 77.0
    said = {"method": "gpm", "preset": "cpu", "options": {"threshold": 0.5}}
    assert build_config("split-cifar100-10", said).options["threshold"] == 0.5
    for other in (
        build_config("split-cifar100-20", {"method": "gpm", "preset": "cpu"}),
        build_config("split-cifar100-10", {"method": "gpm", "preset": "paper"}),
    ):
        assert other.options["threshold"] == before.options["threshold"]
    with pytest.raises(NsclError, match="takes no tuned values"):
        tuned_values.adopt("split-cifar100-10", "paper", "gpm", settings={}, trials="")
    with pytest.raises(NsclError, match="is your own"):
        tuned_values.adopt("folder:birds", "cpu", "gpm", settings={}, trials="")
    (tmp_path / "tuned" / "split-cifar100-10.json").write_text("{")
    tuned_values._read.cache_clear()
    with pytest.raises(NsclError, match="is not JSON"):
        build_config("split-cifar100-10", {"method": "gpm", "preset": "cpu"})
    tuned_values._read.cache_clear()


def test_adopted_files_of_the_package_name_known_methods_and_options() -> None:
    for path in tuned_values.FOLDER.glob("*.json"):
        for preset, methods in tuned_values._read(path).items():
            assert preset in tuned_values.TUNABLE
            for method in methods:
                build_config(path.stem, {"method": method, "preset": preset})
