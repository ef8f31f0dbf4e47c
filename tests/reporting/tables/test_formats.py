"""Tables as Markdown and CSV."""

import csv
import io
import statistics
from pathlib import Path

from nscl.reporting import Table, gather
from nscl.reporting.tables.formats import csv_runs, csv_tables, markdown
from nscl.reporting.tables.sentence import sentence
from tests.reporting.making import matrix


def test_markdown_is_one_aligned_table(table: Table) -> None:
    text = markdown([table])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 2 + 4 + 2
    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        "*without old data*", "adam-nscl (a=10)", "adam-nscl (a=1000)", "finetune",
        "*keep samples of old tasks*", "gem †",
    ]  # fmt: skip
    best = table.rows[0].cells[0]
    assert f"| **{best.text}** |" in text
    assert text.index(sentence(table)) < text.index("| Method")
    assert "Seeds 0, 1; not recorded: date, processor, torch, nscl, commit." in text
    assert "† keeps samples of old tasks." in text
    assert "Published" not in text


def test_csv_has_full_precision(table: Table, lab: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_tables([table]))))
    assert [row["label"] for row in rows] == [
        "adam-nscl (a=10)", "adam-nscl (a=1000)", "finetune", "gem",
    ]  # fmt: skip
    accs = [matrix("finetune", seed).acc for seed in (0, 1)]
    assert float(rows[2]["acc"]) == statistics.fmean(accs)
    assert float(rows[2]["acc_std"]) == statistics.stdev(accs)
    runs = list(csv.DictReader(io.StringIO(csv_runs(gather([lab]).runs))))
    assert len(runs) == 8
    assert {row["finished"] for row in runs} == {"True"}
