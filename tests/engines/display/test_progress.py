"""Progress and remaining time, read from the log of a run."""

from pathlib import Path

import pytest

from nscl.engines.display.progress import Forecast, RunProgress, Watch, progress_of
from tests.engines.jobs import epoch, job, task_end, write_metrics


def test_progress_counts_tasks_and_epochs(tmp_path: Path) -> None:
    one = job(tmp_path, optim={"epochs": 4})  # three tasks
    assert progress_of(one, []).share == 0
    begun = progress_of(one, [epoch(0, 0, 2.0), epoch(0, 1, 4.0)])
    assert begun.share == pytest.approx(0.5 / 3)
    assert begun.total_seconds == pytest.approx(24.0)
    records = [epoch(0, i, float(i)) for i in range(8)]  # four epochs of a further phase
    later = progress_of(one, [*records, task_end(0, 90.0, 8.0), epoch(1, 0, 1.0)])
    assert later.share == pytest.approx((1 + 1 / 8) / 3)
    assert (later.seconds, later.acc, later.tasks) == (9.0, 90.0, 1)


def test_a_longer_first_task_is_a_larger_share(tmp_path: Path) -> None:
    one = job(tmp_path, optim={"epochs": 2, "first_epochs": 6})  # three tasks, ten epochs
    first = [epoch(0, i, float(i)) for i in range(6)]
    assert progress_of(one, first[:3]).share == pytest.approx(0.3)
    second = progress_of(one, [*first, task_end(0, 90.0, 6.0), epoch(1, 0, 1.0)])
    assert second.share == pytest.approx(0.7)
    assert second.total_seconds == pytest.approx(10.0)


def test_time_left_by_its_like_or_its_own_pace(tmp_path: Path) -> None:
    done, going, waiting, other = (job(tmp_path, seed=s) for s in range(4))
    other = job(tmp_path, "other", seed=4)
    write_metrics(done, [task_end(i, 90.0, 10.0) for i in range(3)])
    write_metrics(going, [task_end(0, 90.0, 12.0)])
    write_metrics(other, [task_end(0, 90.0, 2.0)])
    runs = [done, going, waiting, other]
    forecast = Forecast(Watch())
    assert forecast.left(going, runs) == pytest.approx(18.0)
    assert forecast.left(waiting, runs) == pytest.approx(30.0)
    assert forecast.left(other, runs) == pytest.approx(4.0)
    assert forecast.all_left([going, waiting], runs, slots=2) == pytest.approx(24.0)
    assert forecast.all_left([going, waiting], runs, slots=1) == pytest.approx(48.0)


def test_a_damaged_log_is_no_progress(tmp_path: Path) -> None:
    done, going = (job(tmp_path, seed=s) for s in range(2))
    for made in (done, going):
        write_metrics(made, [task_end(0, 90.0, 12.0)])
    for line in ("garbage", '{"acc": 1}', '{"kind": "epoch"}', '{"kind": "task", "seconds": "x"}'):
        with done.directory.metrics_path.open("a") as log:
            log.write(f"{line}\n")
        watch = Watch()
        assert watch(done) == RunProgress()
        assert Forecast(watch).all_left([going], [done, going], slots=1) == pytest.approx(24.0)
        write_metrics(done, [])
