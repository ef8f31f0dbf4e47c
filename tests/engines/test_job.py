"""A run of a plan: its folder and log, how far it is, and how it has ended."""

from pathlib import Path

from nscl.engines.job import Job, ended_before
from nscl.training.config.build import build_config
from tests.engines.jobs import finish, job


def test_a_job_names_its_folder_and_hides_its_log(tmp_path: Path) -> None:
    made = job(tmp_path, "plain rows", seed=7)
    assert made.title == "plain rows seed 7"
    assert made.directory.path == tmp_path / made.name
    assert made.name == made.config.run_name
    assert made.log == tmp_path / ".logs" / f"{made.name}.log"
    assert made.name == job(tmp_path, "another row", seed=7).name
    assert made.name != job(tmp_path, seed=8).name
    assert not made.directory.path.exists()


def test_it_has_begun_once_there_is_something_to_continue(tmp_path: Path) -> None:
    made = job(tmp_path)
    made.directory.checkpoint_path.mkdir(parents=True)
    assert not made.is_begun
    (made.directory.checkpoint_path / "epoch.pt").touch()
    assert made.is_begun


def test_tasks_are_those_of_the_stream_as_far_as_it_is_used(tmp_path: Path) -> None:
    def tasks(**data: int) -> int:
        settings = {"method": "finetune", "out": tmp_path, "data": data}
        return Job(build_config("split-digits-5", settings), "x").tasks

    assert tasks() == 5
    assert tasks(first=3) == 3
    assert tasks(tasks=2) == 2
    assert tasks(tasks=2, first=9) == 2


def test_a_result_that_cannot_be_read_is_a_failure_and_no_result(tmp_path: Path) -> None:
    made = job(tmp_path)
    assert made.result() is None
    truth = finish(made, [[90.0]], 1.0)
    assert made.result() == truth
    assert ended_before(made).state == "done"
    made.directory.result_path.write_text("{")
    assert made.result() is None
    ending = ended_before(made)
    assert ending.state == "failed"
    assert "result.json is truncated or not JSON" in ending.error
