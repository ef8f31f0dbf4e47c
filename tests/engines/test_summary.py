"""The final table: means over seeds, on screens of all widths."""

import io
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from nscl.engines.summary import footnotes, summarise, table
from tests.engines.jobs import finish, job


def test_the_table_is_the_mean_and_sample_deviation_over_seeds(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "gem", seed=s) for s in range(3)]
    jobs.append(job(tmp_path, "plain", seed=7))
    for i, made in enumerate(jobs[:2]):
        finish(made, [[90.0], [80.0 + 4 * i, 70.0]], 5.0 + i, stores="data")
    finish(jobs[3], [[50.0]], 2.0)
    gem, plain = summarise(jobs)
    assert gem.seeds == (0, 1)
    assert gem.figures["acc"].mean == pytest.approx(76.0)
    assert gem.figures["acc"].std == pytest.approx(statistics.stdev([75.0, 77.0]))
    assert gem.figures["bwt"].mean == pytest.approx(-8.0)
    console = Console(file=io.StringIO(), width=160)
    console.print(table([gem, plain], expected={"gem": {"acc": 76.5}}))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "gem*" in text
    assert "plain " in text
    assert "76.00 ± 1.41" in text
    assert "ACC 76.5" in text
    noted = replace(gem, remarks=("images kept per class 5",))
    assert footnotes([noted, plain]) == ["* keeps old data", "images kept per class 5: gem"]
    assert footnotes([plain]) == []


def test_the_table_folds_no_figure_on_a_narrow_screen(tmp_path: Path) -> None:
    for label in ("instaparam", "Ratio 30, float32 and literal"):
        jobs = [job(tmp_path / label, label, seed=s) for s in range(2)]
        for i, made in enumerate(jobs):
            finish(made, [[90.0], [80.0 + 4 * i, 70.0]], 65.0 + i)
        console = Console(file=io.StringIO(), width=80)
        rows = summarise(jobs)
        found = {label: {"acc": 76.5, "bwt": -8.25}}
        console.print(table(rows, width=80))
        console.print(table(rows, expected=found, width=80))
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) == 4
        assert all(len(line) <= 80 for line in lines)
        assert all(f"{label} " in line and "76.00 ± 1.41" in line for line in lines[1::2])
        assert "-8.00 ± 2.83" in lines[1]
        assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [26, 40, 60, 70, 80, 120])
@pytest.mark.parametrize(
    "labels",
    [
        [f"adam-nscl a={a} lr=0.001 norms=freeze rule=ratio literal=true" for a in (10, 30)],
        [f"{'of a very long name ' * 9}{end}" for end in ("one", "two")],
        [f"{'x' * 90}{letter}{'y' * 90}" for letter in "ab"],
    ],
)
def test_long_labels_give_way_to_figures_and_stay_apart(
    tmp_path: Path, width: int, labels: list[str]
) -> None:
    places = [(label, tmp_path / str(i)) for i, label in enumerate(labels)]
    jobs = [job(place, label, seed=s) for label, place in places for s in range(2)]
    for i, made in enumerate(jobs):
        finish(made, [[90.0], [80.0 + 4 * (i % 2), 70.0]], 65.0 + i % 2)
    console = Console(file=io.StringIO(), width=width)
    console.print(table(summarise(jobs), expected={}, width=width))
    head, *rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "ACC %" in head
    assert ("BWT" in head) == (width >= 40)
    assert ("seconds" in head) == (width >= 120)
    assert all(len(row) <= width and "76.00 ± 1.41" in row for row in rows)
    shown = [row[: row.index("76.00")] for row in rows]
    assert shown[0] != shown[1]
    assert all(name[:3] in labels[0] for name in shown)


def test_brackets_in_a_plans_names_are_no_markup(tmp_path: Path) -> None:
    made = job(tmp_path, "Ratio [a=30], [bold]")
    finish(made, [[50.0]], 2.0)
    console = Console(file=io.StringIO(), width=160)
    console.print(table(summarise([made])))
    assert "Ratio [a=30], [bold] " in console.file.getvalue()  # type: ignore[attr-defined]
