"""Tables hold what a plain computation gives."""

import statistics
from dataclasses import replace
from pathlib import Path

from nscl.metrics import AccuracyMatrix
from nscl.reporting import Table, gather, make_table, sections
from nscl.reporting.tables.formats import markdown
from nscl.results import AT_CHANCE
from tests.reporting.making import make_run, matrix, result


def test_mean_and_deviation_are_those_of_the_seeds(table: Table) -> None:
    row = table.rows[3]
    assert (row.series.method, row.seeds, row.keeps_data) == ("gem", 2, True)
    accs = [matrix("gem", seed).acc for seed in (0, 1)]
    bwts = [matrix("gem", seed).bwt for seed in (0, 1)]
    cells = dict(zip([c.key for c in table.columns], row.cells, strict=True))
    assert cells["acc"].text == f"{statistics.mean(accs):.2f} ± {statistics.stdev(accs):.2f}"
    assert cells["bwt"].text == f"−{-statistics.mean(bwts):.2f} ± {statistics.stdev(bwts):.2f}"
    assert cells["ms_per_step"].text == "4.50 ± 0.71"
    assert cells["memory_ratio"].text == "1.50 ± 0.00"


def made(root: Path, stores: dict[str, str], **last: float) -> Table:
    """A table of runs whose first task ends at the given accuracy."""
    for method, end in last.items():
        run = make_run(root, method, stores=stores.get(method, "nothing"), finished=False, tasks=0)
        run.write_result(
            result(run, AccuracyMatrix([[90], [end, 90]]), stores.get(method, "nothing"))
        )
    (section,) = sections(gather([root]).runs)
    return make_table(section)


def test_rows_are_sorted_by_acc_in_groups_that_compare(tmp_path: Path) -> None:
    stores = {"gem": "data", "mega": "data", "joint": "data", "independent": "parameters"}
    table = made(
        tmp_path, stores, gem=60, mega=80, joint=88, independent=89, ewc=40, lwf=70, finetune=50
    )
    assert {name: [r.series.method for r in rows] for name, rows in table.groups.items()} == {
        "without": ["lwf", "finetune", "ewc"],
        "with": ["mega", "gem"],
        "bounds": ["independent", "joint"],
    }
    assert [row for rows in table.groups.values() for row in rows] == list(table.rows)


def test_the_best_of_every_column_is_marked_in_its_group(tmp_path: Path) -> None:
    stores = {"gem": "data", "mega": "data", "joint": "data"}
    table = made(tmp_path, stores, gem=60, mega=80, joint=88, ewc=40, lwf=70, si=70)
    keys = [column.key for column in table.columns]
    best = {
        row.series.method: [key for key, cell in zip(keys, row.cells, strict=True) if cell.is_best]
        for row in table.rows
    }
    reached = ["acc", "bwt", "forgetting"]  # small forgetting is good, small accuracy is not
    assert best == {
        "lwf": reached,
        "si": reached,
        "ewc": [],
        "mega": reached,
        "gem": [],
        "joint": [],
    }


def test_a_row_at_chance_is_not_the_best_at_forgetting_nothing(tmp_path: Path) -> None:
    runs = {"ewc": [[90], [70, 90]], "lwf": [[90], [80, 90]], "mas": [[50], [50, 50]]}
    for method, rows in runs.items():
        run = make_run(tmp_path, method, finished=False, tasks=0)
        found = result(run, AccuracyMatrix(rows), "nothing")
        remark = (f"{AT_CHANCE} in 2 of 2 tasks (1, 2), try another learning rate",)
        run.write_result(replace(found, remarks=remark if method == "mas" else ()))
    (section,) = sections(gather([tmp_path]).runs)
    table = make_table(section)
    keys = [column.key for column in table.columns]
    best = {
        row.series.method: {key for key, cell in zip(keys, row.cells, strict=True) if cell.is_best}
        for row in table.rows
    }
    assert best["mas"] == set()
    assert {"acc", "bwt", "forgetting"} <= best["lwf"]
    assert "\nBWT and forgetting of rows at chance are not compared.\n" in markdown([table])
