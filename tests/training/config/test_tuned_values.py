"""Tuned values: adopted for small presets, kept beside others, refused where they do not belong."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nscl.errors import NsclError
from nscl.training.config import tuned_values
from nscl.training.config.tuned_values import adopt, check_adoptable, tuned_settings

BENCHMARK = "split-digits-5"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tuned_values, "FOLDER", tmp_path / "tuned")
    tuned_values._read.cache_clear()
    yield tmp_path / "tuned"
    tuned_values._read.cache_clear()


def test_an_adopted_value_is_the_presets_own(folder: Path) -> None:
    assert tuned_settings(BENCHMARK, "cpu-2", "ewc") == {}
    for method, strength in (("ewc", 2.0), ("mas", 3.0)):
        settings = {"options": {"strength": strength}}
        adopt(BENCHMARK, "cpu-2", method, settings=settings, trials="record.json")
    assert tuned_settings(BENCHMARK, "cpu-2", "ewc") == {"options": {"strength": 2.0}}
    assert tuned_settings(BENCHMARK, "quick", "ewc") == {}
    assert tuned_settings(BENCHMARK, "paper", "ewc") == {}
    written = json.loads((folder / f"{BENCHMARK}.json").read_text())
    assert {name: entry["trials"] for name, entry in written["cpu-2"].items()} == {
        "ewc": "record.json",
        "mas": "record.json",
    }


@pytest.mark.parametrize(
    ("benchmark", "preset", "message"),
    [
        (BENCHMARK, "paper", "as published .*adopt for cpu or quick"),
        (BENCHMARK, "cpu-1", "stays as it was measured; adopt for cpu"),
        ("folder:birds", "cpu-2", "is your own: .*leave out --adopt"),
    ],
)
def test_what_tuned_values_are_not_adopted_for(benchmark: str, preset: str, message: str) -> None:
    with pytest.raises(NsclError, match=f"(?i){message}"):
        check_adoptable(benchmark, preset)


def test_a_broken_file_is_named(folder: Path) -> None:
    folder.mkdir()
    (folder / f"{BENCHMARK}.json").write_text("{")
    with pytest.raises(NsclError, match=f"{BENCHMARK}.json is not JSON .*reinstall nscl"):
        tuned_settings(BENCHMARK, "cpu-2", "ewc")
