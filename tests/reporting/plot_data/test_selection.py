"""Of many series the best, the worst and those named stand out."""

from dataclasses import replace
from pathlib import Path

import pytest

from nscl.metrics import AccuracyMatrix
from nscl.reporting import ReportError, Section, gather, sections, write_report
from nscl.reporting.plot_data.selection import standing_out
from tests.reporting.making import make_run

# Method, what it keeps, and its accuracy on both tasks.
METHODS = {
    "finetune": ("nothing", 20), "ewc": ("nothing", 40), "lwf": ("nothing", 60),
    "owm": ("parameters", 50), "gpm": ("parameters", 45), "gem": ("data", 55),
    "a-gem": ("data", 48), "mega": ("data", 52), "joint": ("data", 90),
}  # fmt: skip


def made(root: Path, methods: list[str]) -> Section:
    for method in methods:
        stores, acc = METHODS[method]
        run = make_run(root, method, stores=stores, tasks=2)
        found = replace(run.result(), accuracy=AccuracyMatrix([[acc], [acc, acc]]))
        run.result_path.unlink()
        run.write_result(found)
    (section,) = sections(gather([root]).runs)
    return section


def shown(section: Section, *named: str) -> set[str]:
    pairs = zip(section.shown, standing_out(section, named), strict=True)
    return {series.label for series, stands_out in pairs if stands_out}


def test_of_eight_all_stand_out(tmp_path: Path) -> None:
    assert len(shown(made(tmp_path, [*METHODS][:8]))) == 8


def test_of_nine_the_best_and_the_worst_with_and_without_old_data(tmp_path: Path) -> None:
    section = made(tmp_path, [*METHODS])
    ends = {"lwf", "finetune", "gem", "a-gem"}  # joint is a bound, not the best
    assert shown(section) == ends
    assert shown(section, "joint", "owm") == {*ends, "joint", "owm"}


def test_a_run_that_is_not_as_far_is_neither_best_nor_worst(tmp_path: Path) -> None:
    make_run(tmp_path, "frozen", tasks=1, finished=False)
    assert "frozen (unfinished)" not in shown(made(tmp_path, [*METHODS]))


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    made(tmp_path / "runs", ["ewc", "gem"])
    with pytest.raises(ReportError, match=r"no row or method is called 'agem': .* ewc, gem"):
        write_report([tmp_path / "runs"], tmp_path / "report", highlight=["agem"])
    assert not (tmp_path / "report").exists()
