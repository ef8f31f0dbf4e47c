"""The folder of a run: named by its configuration, never another's, finished once."""

import pytest

from nscl.atomic import LEFTOVER_PREFIX
from nscl.results import (
    RunDirectory,
    RunFinishedError,
    RunLockedError,
    RunMismatchError,
    WriteError,
)


def test_the_same_run_is_found_again_and_left_as_it_is(make_run):
    before = make_run()
    text = before.config_path.read_bytes()
    after = make_run(
        config={"optim": {"betas": (0.9, 0.999), "lr": 1e-3}, "epochs": 2},
        environment={"python": "3.13.0"},
    )
    assert after.path == before.path
    assert after.config_path.read_bytes() == text


def test_another_configuration_gets_another_folder(make_run):
    assert make_run().path != make_run(config={"epochs": 3}).path


def test_a_folder_with_another_configuration_is_refused_naming_both(make_run):
    run, other = make_run(), make_run(config={"epochs": 3, "optim": {"lr": 0.5}}, seed=1)
    run.config_path.write_bytes(other.config_path.read_bytes())
    with pytest.raises(RunMismatchError) as caught:
        make_run()
    message = str(caught.value)
    assert str(run.path) in message
    assert "config.epochs: 3 there, 2 here" in message
    assert "config.optim.betas: None there, [0.9,0.999] here" in message
    assert "config.optim.lr: 0.5 there, 0.001 here" in message
    assert "and 1 more" in message


def test_a_folder_that_is_no_run_is_refused(make_run):
    run = make_run()
    run.config_path.unlink()
    (run.path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunMismatchError, match=r"holds thesis\.tex: it is not a run"):
        make_run()
    assert not run.config_path.exists()


def test_a_start_that_was_killed_before_its_first_file_starts_again(make_run):
    run = make_run()
    run.config_path.rename(run.path / f"{LEFTOVER_PREFIX}1")
    assert make_run().config() == {"epochs": 2, "optim": {"lr": 1e-3, "betas": [0.9, 0.999]}}


def test_a_root_that_cannot_be_written_is_named(tmp_path, make_run):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"cannot write .*file.*: Not a directory"):
        make_run(root=tmp_path / "file")


def test_the_result_is_written_once(make_run, make_result):
    run = make_run()
    result = make_result(directory=run.name)
    run.write_result(result)
    assert run.is_finished
    assert run.result() == result
    text = run.result_path.read_bytes()
    with pytest.raises(RunFinishedError, match="exists already and is kept"):
        run.write_result(make_result(seconds=1.0))
    assert run.result_path.read_bytes() == text


def test_the_result_of_another_configuration_is_refused(make_run, make_result):
    run = make_run()
    with pytest.raises(RunMismatchError, match=r'"epochs":2.*"epochs":5'):
        run.write_result(make_result(config={"epochs": 5}))
    assert not run.is_finished


def test_locked_it_is_alone_and_tidy(make_run):
    run = make_run()
    run.checkpoint_path.mkdir()
    for folder in (run.path, run.checkpoint_path):
        (folder / f"{LEFTOVER_PREFIX}77").write_text("half a file")
    with run.lock() as alone:
        assert alone is run
        assert sorted(p.name for p in run.path.iterdir()) == [".lock", "checkpoint", "config.json"]
        assert list(run.checkpoint_path.iterdir()) == []
        with pytest.raises(RunLockedError), RunDirectory(run.path).lock():
            pytest.fail("two at once")
    assert sorted(p.name for p in run.path.iterdir()) == ["checkpoint", "config.json"]
