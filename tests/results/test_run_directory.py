"""The folder of a run: named by its configuration, never another's, finished once."""

import hashlib
import json

import pytest

from nscl.results import (
    FormatError,
    RunDirectory,
    RunFinishedError,
    RunLockedError,
    RunMismatchError,
    WriteError,
)
from nscl.results.atomic import LEFTOVER_PREFIX


def test_the_name_is_the_hash_of_the_canonical_configuration(make_run):
    run = make_run()
    text = '{"epochs":2,"optim":{"betas":[0.9,0.999],"lr":0.001}}'
    assert run.name == f"split-digits-5-ewc-0-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    assert run.config() == json.loads(text)
    assert run.identity().environment == {"python": "3.11.2"}
    assert not run.is_finished


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


def test_an_edited_configuration_is_noticed(make_run):
    run = make_run()
    run.config_path.write_text(run.config_path.read_text().replace('"epochs": 2', '"epochs": 9'))
    with pytest.raises(FormatError, match="was changed after the run began"):
        make_run()


def test_a_folder_that_is_no_run_is_refused(make_run):
    run = make_run()
    run.config_path.unlink()
    (run.path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunMismatchError, match=r"holds thesis\.tex: it is no run"):
        make_run()
    assert not run.config_path.exists()


def test_a_start_that_was_killed_before_its_first_file_starts_again(make_run):
    run = make_run()
    run.config_path.rename(run.path / f"{LEFTOVER_PREFIX}1")
    assert make_run().config() == {"epochs": 2, "optim": {"lr": 1e-3, "betas": [0.9, 0.999]}}


@pytest.mark.parametrize(
    ("stream", "method", "start"),
    [
        ("folder:/a/b", "pkg.mod:Class", "folder-a-b-pkg.mod-Class-0-"),
        ("folder:../../etc", "../x", "folder-..-..-etc-x-0-"),
        ("数据", ".", "unnamed-unnamed-0-"),
        ("folder:/" + "x" * 300 + "/birds", "ewc", "folder-xxxxx--"),
    ],
)
def test_any_name_becomes_one_safe_folder_under_the_root(tmp_path, make_run, stream, method, start):
    run = make_run(benchmark=stream, method=method)
    assert run.name.startswith(start)
    assert run.path.parent == tmp_path / "runs"
    assert len(run.name) < 128
    assert run.identity().benchmark == stream
    assert run.identity().method == method


@pytest.mark.parametrize("seed", [-1, 1.0, True, "0"])
def test_a_seed_is_a_whole_number(make_run, seed):
    with pytest.raises(RunMismatchError, match="a seed is a whole number"):
        make_run(seed=seed)


def test_a_configuration_that_is_no_data_is_refused(make_run):
    for config in ({"lr": float("nan")}, {"model": object()}):
        with pytest.raises(FormatError, match="configuration is not plain JSON data"):
            make_run(config=config)


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
    with pytest.raises(RunFinishedError, match="is there already and stays"):
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


@pytest.mark.parametrize("missing", ["benchmark", "method", "seed", "config", "environment"])
def test_a_config_file_without_a_part_is_refused(make_run, missing):
    run = make_run()
    record = json.loads(run.config_path.read_text())
    del record[missing]
    run.config_path.write_text(json.dumps(record))
    with pytest.raises(FormatError, match=rf"config\.json.*{missing} is no"):
        run.config()
