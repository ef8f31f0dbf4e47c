"""What stands below a table: signs, remarks, and what is not alike in all rows."""

import csv
import io
from pathlib import Path

from nscl.reporting import Table, gather, make_table, sections
from nscl.reporting.tables.formats import csv_tables, markdown
from nscl.reporting.tables.latex import latex
from nscl.reporting.tables.notes import notes, signs
from nscl.reporting.tables.rows import LEGEND
from tests.reporting.making import make_run


def test_pools_and_budgets_stand_beside_the_numbers(tmp_path: Path) -> None:
    make_run(tmp_path, "gem", stores="data", notes={"images kept per class": 5})
    for method in ("gd-wild", "muc-mas"):
        make_run(tmp_path, method, notes={"pool": "a_pool@32x32"})
    make_run(tmp_path, "muc-mas", seed=1, notes={"pool": "another"})
    (section,) = sections(gather([tmp_path]).runs)
    table = make_table(section)
    assert "\nImages kept per class 5: gem.\n" in markdown([table])
    assert "\nPool a_pool@32x32: gd-wild, muc-mas.\n" in markdown([table])
    assert r"Pool a\_pool@32x32: " in latex([table])
    assert "\nPool another: muc-mas.\n" in markdown([table])
    rows = {row["label"]: row for row in csv.DictReader(io.StringIO(csv_tables([table])))}
    assert rows["gem"]["remarks"] == "images kept per class 5"
    assert rows["muc-mas"]["remarks"] == "pool a_pool@32x32; pool another"


def test_signs_are_explained_where_they_are_used(tmp_path: Path, table: Table) -> None:
    assert signs(table) == [
        LEGEND,
        "Mean ± sample standard deviation over seeds.",
        "Bold: the best of its column and group.",
    ]
    make_run(tmp_path, "finetune")
    make_run(tmp_path, "ewc", settings={"bn_stats": "frozen"})
    (section,) = sections(gather([tmp_path]).runs)
    found = notes(make_table(section))
    assert "Not alike in all rows: bn_stats." in found
    assert LEGEND not in found
    assert not any("standard deviation" in line for line in found)
