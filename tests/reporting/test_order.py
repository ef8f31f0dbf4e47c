"""Rows that are alike stand side by side, in tables, legends, maps and figures."""

from pathlib import Path

from nscl.reporting import gather, sections
from tests.reporting.making import make_run
from tests.reporting.plans import make_plan


def called(root: Path) -> list[str]:
    (section,) = sections(gather([root]).runs)
    return [series.label for series in section.series]


def test_ablations_stand_in_families(tmp_path: Path) -> None:
    """As one would write them down by hand; the plan has them in an order of its own."""
    make_plan(tmp_path, named=True)
    assert called(tmp_path) == [
        "finetune", "adam-nscl",
        *(f"plain, rate {rate}" for rate in ("2e-4", "5e-4", "1e-3", "4e-3")),
        *(f"Ratio {a}" for a in (10, 50, 100, 150)),
        "statistics frozen", "statistics per task",
        "displacement, Ratio 30", *(f"displacement, Ridge {a}" for a in (3, 10, 30, 100, 300)),
        "batch means", "Ratio 30, float32 and literal", "norms frozen", "norms free",
        "Energy 0.01", "Energy 0.05", "Ridge 10",
        *(f"Frobenius, rate {rate}" for rate in ("2e-3", "5e-3", "1e-2", "3e-2")),
    ]  # fmt: skip


def test_the_usual_value_keeps_its_place_in_a_sweep_beside_another_switch(tmp_path: Path) -> None:
    for a in (2.0, 9.0, 10.0, 11.0, 100.0):
        make_run(tmp_path, "adam-nscl", a=a, norms="freeze")
    for note in "abcdefgh":
        make_run(tmp_path, "adam-nscl", a=10.0, norms="ewc", note=note)
    frozen = [label for label in called(tmp_path) if "freeze" in label]
    values = ["a=2, ", "a=9, ", "", "a=11, ", "a=100, "]
    assert frozen == [f"adam-nscl ({a}norms=freeze, note=None)" for a in values]


def test_none_stands_before_numbers(tmp_path: Path) -> None:
    for a in (10.0, None, 9.0):
        make_run(tmp_path, "adam-nscl", a=a)
    assert called(tmp_path) == [f"adam-nscl (a={a})" for a in ("None", 9, 10)]
