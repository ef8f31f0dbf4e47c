"""Short names of settings stand for settings that exist, and for one each, wherever they are."""

from pathlib import Path
from typing import Any

import pytest

from nscl.training.config.build import build_config
from nscl.training.config.schema import ConfigError, RunConfig
from nscl.training.config.short_names import SHORT_NAMES, full_name, short_name, with_full_names
from nscl.training.config.validation import option_names


def test_every_short_name_stands_for_an_option_and_is_not_one_itself() -> None:
    options = option_names(RunConfig)
    assert set(SHORT_NAMES.values()) <= set(options)
    assert not set(SHORT_NAMES) & set(options)
    assert [short_name(full) for full in SHORT_NAMES.values()] == list(SHORT_NAMES)


def test_other_names_stay_as_they_are() -> None:
    assert full_name("batch_size") == full_name("batch-size") == "optim.batch_size"
    assert full_name("optim.later-lr") == "optim.later-lr"


SHORT: dict[str, Any] = {"tasks": 5, "order": "random", "epochs": 1, "lr": 0.02, "batch_size": 8,
                         "model": "convnet", "width": 4}  # fmt: skip
FULL = {"data": {"tasks": 5, "order": "random"}, "model": {"name": "convnet", "width": 4},
        "optim": {"epochs": 1, "lr": 0.02, "batch_size": 8}}  # fmt: skip


def test_python_and_files_take_short_names_as_the_command_line_does(tmp_path: Path) -> None:
    assert set(SHORT) == set(SHORT_NAMES)
    assert with_full_names(SHORT) == with_full_names(FULL) == FULL
    expected = build_config("split-digits-5", FULL)
    assert build_config("split-digits-5", SHORT) == expected
    file = tmp_path / "settings.toml"
    file.write_text("".join(f"{name} = {value!r}\n" for name, value in SHORT.items()))
    assert build_config("split-digits-5", {}, file=file) == expected
    assert RunConfig(benchmark="x", **SHORT) == RunConfig(benchmark="x", **FULL)


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_a_short_name_beside_its_full_one_is_refused(name: str, tmp_path: Path) -> None:
    table, key = SHORT_NAMES[name].split(".")
    both = {name: SHORT[name], table: {key: SHORT[name]}}
    if name == "model":  # a table of that name is the same key
        both = {"width": 4, "model": {"width": 4}}
    with pytest.raises(ConfigError, match=r"is short for '.*', which is given too: leave one out"):
        build_config("split-digits-5", both)


def test_the_stronger_layer_wins_under_either_name(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("lr = 0.5\n[optim]\nepochs = 3\n")
    found = build_config("split-digits-5", {"optim": {"lr": 0.1}, "epochs": 2}, file=file).optim
    assert (found.lr, found.epochs) == (0.1, 2)


def test_none_is_not_given_under_a_short_name_either() -> None:
    assert with_full_names({"lr": None, "optim": {"lr": 0.1}}) == {"optim": {"lr": 0.1}}
