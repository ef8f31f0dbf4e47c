"""The command: names, exit codes and what it leaves behind."""

import json
from pathlib import Path

import pytest
import torch
from benchmarks.catalogue import Entry
from benchmarks.figure import Figure, at_most

from benchmarks import __main__ as command
from benchmarks import catalogue


@pytest.fixture(autouse=True)
def two_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that cost nothing: one kept, one missed, one that waits for --full."""
    entries = {
        "good": Entry(lambda _: Figure("good", "", 1.0, 2.0, "ms", at_most(1)), full=False),
        "bad": Entry(lambda _: Figure("bad", "", 3.0, 2.0, "ms", at_most(1)), full=False),
        "long": Entry(lambda _: Figure("long", "", 1.0, 2.0, "s"), full=True),
    }
    monkeypatch.setattr(catalogue, "catalogue", lambda: entries)
    monkeypatch.setattr(command, "alone", lambda measure, watch, _: measure(watch))


def run(path: Path, *arguments: str) -> int:
    threads = torch.get_num_threads()
    return command.main([*arguments, "--json", str(path), "--threads", str(threads)])


def test_a_table_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "new" / "found.json") == 0
    shown = capsys.readouterr().out
    assert all(expected in shown for expected in ("good", "NO", "1 of 2 targets met"))
    found = json.loads((tmp_path / "new" / "found.json").read_text())
    assert [figure["name"] for figure in found["figures"]] == ["good", "bad"]
    assert {"torch", "threads", "processor", "load"} <= found["machine"].keys()
    assert found["settings"]["clock"] == "wall"


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("bad", 1)])
def test_a_missed_target_counts_when_strict(tmp_path: Path, name: str, code: int) -> None:
    assert run(tmp_path / "a.json", "--only", name) == 0
    assert run(tmp_path / "a.json", "--only", name, "--strict") == code


def test_long_figures_wait_to_be_asked(tmp_path: Path) -> None:
    def names(*arguments: str) -> list[str]:
        run(tmp_path / "a.json", *arguments)
        found = json.loads((tmp_path / "a.json").read_text())["figures"]
        return [figure["name"] for figure in found]

    assert "long" not in names()
    assert "long" in names("--full")
    assert names("--only", "long") == ["long"]


def test_an_unknown_name_gets_a_list_of_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "a.json", "--only", "goood") == 2
    assert "good, bad, long" in capsys.readouterr().err
    assert not (tmp_path / "a.json").exists()
