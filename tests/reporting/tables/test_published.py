"""Published numbers have columns of their own."""

from pathlib import Path

import pytest

from nscl.reporting import gather, make_table, published, sections
from nscl.reporting.tables.formats import markdown
from nscl.reporting.tables.published import BENCHMARKS, rank
from tests.reporting.making import make_run


@pytest.mark.parametrize("stream", BENCHMARKS)
def test_published_numbers_have_columns_of_their_own(tmp_path: Path, stream: str) -> None:
    for method in ("gem", "adns", "joint"):
        make_run(tmp_path, method, benchmark=stream)
    (section,) = sections(gather([tmp_path]).runs)
    table = make_table(section)
    names = [c.heading for c in table.columns]
    assert names[:4] == ["ACC", "BWT", "Published ACC, full scale", "Published BWT, full scale"]
    found = {row.series.method: row.cells[2].text for row in table.rows}
    assert found["joint"] == "–"
    shown = published(stream, "gem")
    assert found["gem"] == (f"{shown.acc:.2f}" if shown else "–")
    text = markdown([table])
    assert "full-scale results of others, not of these runs" in text
    assert "Kong et al., ECCV 2022" in text


def test_published_numbers_as_printed() -> None:
    assert published("split-cifar100-20", "adam-nscl")[:2] == (75.95, -3.66)  # type: ignore[index]
    assert published("split-tinyimagenet-25", "gem") is None
    assert published("split-digits-5", "adam-nscl") is None
    assert sorted(["joint", "zzz", "adam-nscl", "finetune", "ewc"], key=rank) == [
        "finetune", "ewc", "adam-nscl", "zzz", "joint",
    ]  # fmt: skip
