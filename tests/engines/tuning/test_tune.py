"""Tuning from the trials to the record."""

from pathlib import Path

import pytest

from nscl.engines.job import ended_before
from nscl.engines.tuning.tune import Tuning
from nscl.errors import NsclError
from nscl.results import read_metrics
from nscl.training.experiment import run
from tests.engines.jobs import finish


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
    given = {"options": options, "data": {"first": 2}, "optim": {"epochs": 1}, "threads": 1}
    made = Tuning.prepare(
        method, "split-digits-5", {**given, "out": tmp_path}, root=tmp_path, trials=9
    )
    assert {name for trial in made.trials for name in trial.point} == varied
    for job in made.jobs:
        assert options.items() <= job.config.options.items()


def test_the_online_strength_of_owm_trains_differently(tmp_path: Path) -> None:
    short = {"data": {"first": 1}, "optim": {"epochs": 2}, "threads": 1, "out": tmp_path}
    given = {"options": {"mode": "online"}, **short}
    made = Tuning.prepare("owm", "split-digits-5", given, root=tmp_path / "tuned", trials=2)
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
    ("method", "given", "message"),
    [
        ("adam-nscl", {"options": {"rule": "tolerance"}}, "no strength to tune with --method.rule"),
        ("adam-nscl", {"options": {"a": 3}}, "--method.a 3: that is what tune varies"),
        ("gpm", {"data": {"order": "natural"}}, "--data.order natural would choose on the"),
    ],
)
def test_trials_that_choose_nothing_are_refused(
    tmp_path: Path, method: str, given: dict[str, object], message: str
) -> None:
    with pytest.raises(NsclError, match=message):
        Tuning.prepare(method, "split-digits-5", given, root=tmp_path)


def test_a_damaged_result_of_a_trial_is_no_answer(tmp_path: Path) -> None:
    given = {"preset": "quick", "out": tmp_path}
    made = Tuning.prepare("gpm", "split-digits-5", given, root=tmp_path / "records", trials=2)
    for job in made.jobs:
        finish(job, [[90.0]], 1.0)
    made.jobs[0].directory.result_path.write_text("{")
    endings = {job.name: ended_before(job) for job in made.jobs}
    assert made.conclude(endings) is None
    assert not made.path.exists()
