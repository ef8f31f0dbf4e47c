"""Series are called as their plan calls them, or by what is unusual about them; never two alike."""

from pathlib import Path

from nscl.reporting import gather, sections
from nscl.reporting.tables.notes import notes
from nscl.reporting.tables.rows import make_table
from tests.reporting.making import make_run
from tests.reporting.plans import make_plan


def called(root: Path) -> list[str]:
    (section,) = sections(gather([root]).runs)
    return [series.label for series in section.series]


def test_variants_are_called_as_their_plan_calls_them(tmp_path: Path) -> None:
    names = make_plan(tmp_path, named=True)
    assert len(names) > 20
    assert sorted(called(tmp_path)) == sorted(names)
    assert called(tmp_path)[:2] == ["finetune", "adam-nscl"]


def test_without_names_only_what_is_unusual_is_reported(tmp_path: Path) -> None:
    names = make_plan(tmp_path, named=False)
    found = called(tmp_path)
    assert len(set(found)) == len(found) == len(names)
    assert found[:2] == ["finetune", "adam-nscl"]  # the plain one first
    assert {"adam-nscl (a=10)", "adam-nscl (norms=freeze)"} <= set(found)
    assert "adam-nscl (acts_on=displacement, alpha=300, rule=ridge)" in found
    assert max(map(len, found)) < 60
    (section,) = sections(gather([tmp_path]).runs)
    (shown,) = [note for note in notes(make_table(section)) if note.startswith("Common settings: ")]
    assert "adam-nscl: " in shown
    assert "a=30" in shown
    assert "finetune" not in shown


def test_a_grid_has_no_usual_value(tmp_path: Path) -> None:
    for a in (10.0, 20.0):
        for norms in ("ewc", "freeze"):
            make_run(tmp_path, "adam-nscl", a=a, norms=norms)
    assert called(tmp_path)[0] == "adam-nscl (a=10, norms=ewc)"
    assert sections(gather([tmp_path]).runs)[0].common_settings == ()


def test_an_earlier_seed_without_a_name_shares_its_series(tmp_path: Path) -> None:
    make_run(tmp_path, "adam-nscl", 0, a=10.0)
    make_run(tmp_path, "adam-nscl", 1, a=10.0, label=" Ratio\n10 ")
    make_run(tmp_path, "adam-nscl", 0, a=20.0)
    assert called(tmp_path) == ["Ratio 10", "adam-nscl (a=20)"]


def test_a_name_that_means_two_things_is_not_used(tmp_path: Path) -> None:
    make_run(tmp_path, "adam-nscl", 0, a=10.0, label="mine")
    make_run(tmp_path, "adam-nscl", 0, a=20.0, label="mine")
    assert called(tmp_path) == ["adam-nscl (a=10)", "adam-nscl (a=20)"]
    make_run(tmp_path, "adam-nscl", 0, a=30.0, label="one")
    make_run(tmp_path, "adam-nscl", 1, a=30.0, label="two")
    make_run(tmp_path, "gem", label="adam-nscl (a=10)")
    assert called(tmp_path) == ["gem", *(f"adam-nscl (a={a})" for a in (10, 20, 30))]


def test_numbers_that_are_nearly_alike_stay_apart(tmp_path: Path) -> None:
    make_run(tmp_path, "adam-nscl", a=0.1)
    make_run(tmp_path, "adam-nscl", a=0.1 + 1e-12)
    assert len(set(called(tmp_path))) == 2
