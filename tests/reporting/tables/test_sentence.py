"""The sentence above a table names the best of those that may be compared."""

from dataclasses import replace
from pathlib import Path

from nscl.reporting import Table, gather, make_table, sections
from nscl.reporting.tables.sentence import sentence
from tests.reporting.making import make_run


def test_variants_are_counted_apart_from_methods(table: Table) -> None:
    first, gem = table.rows[0], table.rows[-1]
    assert sentence(table) == (
        "Of 4 variants of 3 methods, best without old data: adam-nscl (a=10) with ACC "
        f"{first.cells[0].text} %, BWT {first.cells[1].text} (2 seeds); "
        f"best with old data: gem with ACC {gem.cells[0].text} %, "
        f"BWT {gem.cells[1].text} (2 seeds)."
    )


def test_joint_training_is_no_winner(tmp_path: Path) -> None:
    for method, stores in (("ewc", "parameters"), ("joint", "data")):
        make_run(tmp_path, method, stores=stores)
    (section,) = sections(gather([tmp_path]).runs)
    text = sentence(make_table(section))
    assert text.startswith("Of 2 methods, best without old data: ewc with ACC ")
    assert "best with old data" not in text
    assert "; for comparison: joint with ACC " in text


def test_one_row_is_not_the_best_of_anything(table: Table) -> None:
    assert sentence(replace(table, rows=table.rows[:1])).startswith("adam-nscl (a=10) with ACC ")
    assert sentence(replace(table, rows=())) == ""
