"""Tuning from the trials to the record."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nscl.engines.job import Ending, Job
from nscl.engines.tuning.tune import Tuning
from nscl.engines.tuning.tuned_file import Tuned
from nscl.errors import NsclError
from nscl.results import read_metrics
from nscl.training.experiment import run
from tests.engines.jobs import finish

SHORT = {"data": {"first": 1}, "optim": {"epochs": 2}, "threads": 1}


def prepared(method: str, folder: Path, *, trials: int = 7, **given: object) -> Tuning:
    settings = {"preset": "quick", "out": folder / "runs", **given}
    return Tuning.prepare(
        method, "split-digits-5", settings, root=folder / "records", trials=trials
    )


def carried_out(tuning: Tuning, acc: Callable[[Job], float | None]) -> list[list[Job]]:
    """Every round of jobs, each finished with an accuracy, or failed with None."""
    rounds = []
    while jobs := tuning.next_jobs():
        rounds.append(jobs)
        for job in jobs:
            value = acc(job)
            if value is not None:
                finish(job, [[value]], 1.0)
        failed = [job for job in jobs if acc(job) is None]
        tuning.take_failures(Ending(job, "failed", error="it broke down") for job in failed)
    return rounds


def best_at(strength: float, rate: float) -> Callable[[Job], float | None]:
    def acc(job: Job) -> float:
        options, later = job.config.options, job.config.optim.later_lr
        assert later is not None
        return 90.0 - 5 * (options["strength"] != strength) - 5 * (later != rate) + job.config.seed

    return acc


def test_rates_strengths_and_a_second_seed_in_turn(tmp_path: Path) -> None:
    tuning = prepared("lwf", tmp_path)
    rounds = carried_out(tuning, best_at(10.0, 3.2e-3))
    assert [len(jobs) for jobs in rounds] == [3, 2, 1, 2]
    tuned = tuning.conclude()
    assert tuned is not None
    assert tuned.settings == {"options": {"strength": 10.0}, "optim": {"later_lr": 3.2e-3}}
    assert [trial.seed for trial in tuned.trials] == [0] * 6 + [1] * 2
    assert tuned.acc == pytest.approx(90.5)  # the mean over both seeds
    assert tuned.protocol["trials"] == 7
    assert tuned.protocol["data"]["holdout"] == 0.1
    assert Tuned.read(tuning.path) == tuned


def test_what_is_finished_or_on_record_is_not_repeated(tmp_path: Path) -> None:
    first = prepared("lwf", tmp_path)
    for job in first.next_jobs():
        finish(job, [[best_at(10.0, 1e-2)(job) or 0.0]], 1.0)
    again = prepared("lwf", tmp_path)
    assert {job.config.options["strength"] for job in again.next_jobs()} == {1.0, 10.0}
    carried_out(again, best_at(10.0, 1e-2))
    tuned = again.conclude()
    before = again.path.read_bytes()
    for job in (tmp_path / "runs").iterdir():
        job.rename(tmp_path / f"gone-{job.name}")
    later = prepared("lwf", tmp_path)
    assert later.next_jobs() == []
    assert later.conclude() == tuned
    assert later.path.read_bytes() == before
    with pytest.raises(NsclError, match="trials of another protocol or grid: add --force"):
        prepared("lwf", tmp_path, optim={"epochs": 3})
    with pytest.raises(NsclError, match="trials of another protocol or grid: add --force"):
        prepared("lwf", tmp_path, optim={"later_lr": 1e-3})


def test_a_setting_that_breaks_down_is_on_record_and_never_chosen(tmp_path: Path) -> None:
    tuning = prepared("lwf", tmp_path)
    good = best_at(3.0, 1e-2)
    carried_out(tuning, lambda job: None if job.config.options["strength"] > 3 else good(job))
    tuned = tuning.conclude()
    assert tuned is not None
    assert tuned.settings["options"] == {"strength": 3.0}
    errors = {trial.point["strength"]: trial.error for trial in tuned.trials if trial.error}
    assert errors == {10.0: "it broke down"}


def test_nothing_is_chosen_where_all_broke_down(tmp_path: Path) -> None:
    tuning = prepared("lwf", tmp_path)
    carried_out(tuning, lambda job: None)
    assert tuning.conclude() is None
    assert not tuning.path.exists()


def test_values_past_the_grid_are_tried_only_where_the_method_takes_them(tmp_path: Path) -> None:
    tuning = prepared("gpm", tmp_path, trials=9)
    carried_out(tuning, lambda job: 50.0 + job.config.options["threshold"])
    tried = sorted({point[1] for point, _ in tuning.known})
    assert tried == pytest.approx([0.8, 0.9, 0.95, 0.97, 0.97**2 / 0.95])  # the next is above 1


def test_the_online_strength_of_owm_trains_differently(tmp_path: Path) -> None:
    tuning = prepared(
        "owm", tmp_path, trials=3, options={"mode": "online"}, **{**SHORT, "data": {"first": 1}}
    )
    losses = set()
    jobs = tuning.next_jobs()
    while jobs:
        for job in jobs:
            run(job.config)
            records = read_metrics(job.directory.metrics_path)
            losses.add(tuple(r["loss"] for r in records if r["kind"] == "epoch"))
        jobs = tuning.next_jobs()
    assert len(losses) >= 3
    tuned = tuning.conclude()
    assert tuned is not None
    assert tuned.protocol["options"] == {"mode": "online"}
    with pytest.raises(NsclError, match=r"--adopt goes without --method\.mode online"):
        tuning.adopt(tuned)


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
        prepared(method, tmp_path, **given)


def test_a_damaged_result_of_a_trial_is_no_answer(tmp_path: Path) -> None:
    tuning = prepared("lwf", tmp_path)
    jobs = tuning.next_jobs()
    for job in jobs:
        finish(job, [[90.0]], 1.0)
    jobs[0].directory.result_path.write_text("{")
    assert [job.name for job in tuning.next_jobs()] == [jobs[0].name]
    assert tuning.conclude() is None
    assert not tuning.path.exists()
