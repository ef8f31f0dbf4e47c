"""``nscl tune``: the best trial, its record, and its adoption."""

import json
from pathlib import Path

import pytest

from nscl.cli.app import call
from nscl.engines.tuning.tuned_file import Tuned
from nscl.results import find_runs
from nscl.training.config import tuned_values
from nscl.training.config.build import build_config
from tests.cli.calling import TINY, check_refused


def test_tune_takes_the_best_keeps_the_record_and_adopts(
    here: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_values, "FOLDER", here / "adopted")
    tune = ("tune", "adam-nscl", "split-digits-5", "--trials", "2", *TINY)
    assert call([*tune, "--adopt"]) == 0
    record = here / "experiments/tuned/split-digits-5-quick/adam-nscl.json"
    tuned = Tuned.read(record)
    results = {found.name: found.result() for found in find_runs([here / "runs/tuning"]).runs}
    assert {trial.run for trial in tuned.trials} == set(results)
    assert [(trial.point["a"], trial.seed) for trial in tuned.trials] == [
        (10.0, 0), (3.0, 0), (tuned.trials[2].point["a"], 1), (tuned.trials[3].point["a"], 1)
    ]  # fmt: skip
    assert tuned.trials[2].point != tuned.trials[3].point  # both were repeated
    strength = tuned.settings["options"]["a"]
    chosen = [r for r in results.values() if r.config["options"]["a"] == strength]
    assert tuned.acc == pytest.approx(sum(r.acc for r in chosen) / 2)
    assert chosen[0].config["data"]["order"] == "random"
    assert chosen[0].config["data"]["holdout"] == 0.1
    adopted = json.loads((here / "adopted/split-digits-5.json").read_text())["quick"]["adam-nscl"]
    assert adopted["settings"] == tuned.settings
    assert adopted["trials"] == "experiments/tuned/split-digits-5-quick/adam-nscl.json"
    config = build_config("split-digits-5", {"method": "adam-nscl"})
    assert config.options["a"] == strength
    before = record.read_bytes()
    capfd.readouterr()
    assert call(tune) == 0
    assert "all trials are on record" in capfd.readouterr().out
    assert record.read_bytes() == before
    assert call([*tune, "--optim.lr", "0.5"]) == 2
    assert "--force" in capfd.readouterr().err
    tuned_values._read.cache_clear()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("frozen", "split-digits-5"), "there is nothing to tune"),
        (("gpmm", "split-digits-5"), "did you mean 'gpm'?"),
        (("gpm", "split-digits-5", "--trials", "0"), "at least one"),
        (("gpm", "split-digits-5", "--trials", "1.5"), "a whole number, not '1.5'"),
        (("gpm", "split-digits-5", "--data.order", "natural"), "--data.order-seed"),
        (
            ("adam-nscl", "split-digits-5", "--method.rule", "tolerance"),
            "no strength to tune",
        ),
        (("owm", "split-digits-5", "--method.mode", "online", "--adopt"), "--adopt goes"),
        (("gpm", "split-digits-5", "--preset", "paper", "--adopt"), "as published"),
        (("", "split-digits-5"), "no method is named: use all"),
    ],
)
def test_what_the_user_can_fix_is_one_line_and_exit_code_2(
    args: tuple[str, ...], message: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_refused(("tune", *args), message, here, capfd)
