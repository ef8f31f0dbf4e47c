"""Names of runs: safe as folders, the same for the same configuration."""

import hashlib
import json

import pytest

from nscl.results import (
    FormatError,
    RunMismatchError,
    run_name,
)


def test_the_name_is_the_hash_of_the_canonical_configuration(make_run):
    run = make_run()
    text = '{"epochs":2,"optim":{"betas":[0.9,0.999],"lr":0.001}}'
    assert run.name == f"split-digits-5-ewc-0-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    assert run.config() == json.loads(text)
    assert run.identity().environment == {"python": "3.11.2"}
    assert not run.is_finished


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
def test_a_seed_is_an_integer(make_run, seed):
    with pytest.raises(FormatError, match="seed must be"):
        make_run(seed=seed)
    with pytest.raises(RunMismatchError, match="a seed is an integer"):
        run_name(benchmark="digits", method="ewc", seed=seed, config={})


def test_a_configuration_that_is_no_data_is_refused(make_run):
    for config in ({"lr": float("nan")}, {"model": object()}):
        with pytest.raises(FormatError, match="configuration is not plain JSON data"):
            make_run(config=config)
