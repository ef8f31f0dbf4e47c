"""The figures of wide layers and the projection for a large model, on small shapes."""

import re

import pytest
from benchmarks.catalogue import catalogue
from benchmarks.timing import Stopwatch

from benchmarks import scale, wide


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WIDTH": 24, "INNER": 40, "RANK": 6, "ROWS": 20, "BATCHES": 2}.items():
        monkeypatch.setattr(wide, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["wide-bytes", "wide-remember-4096", "wide-remember"])
def test_every_figure_can_be_measured(name: str) -> None:
    found = catalogue()[name].measure(Stopwatch(seconds=0.1))
    assert found.name == name
    assert found.ours > 0
    assert found.reference > 0
    assert (found.unit, found.target) == ("GiB" if name == "wide-bytes" else "s", None)


@pytest.mark.usefixtures("small")
def test_both_ways_remember_the_same_rows() -> None:
    model, batches = wide.block(), wide.rows()
    ours, full = (wide.remember(model, batches, rank=rank) for rank in (6, None))
    assert ours.nbytes["covariances"] < full.nbytes["covariances"]
    assert [layer.features for layer in ours.report().layers] == [24, 40]


def test_the_projection_is_of_an_8b_model() -> None:
    model = scale.llama()
    assert sum(p.numel() for p in model.parameters()) == 8_030_261_248  # as published
    assert all(p.is_meta for p in model.parameters())


def test_the_projection_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"WIDTH": 24, "INNER": 40, "KEYS": 12, "VOCABULARY": 50, "DEPTH": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(scale, name, value)
    scale.main(["--rank", "8", "--rows", "40", "--threads", "1"])
    printed = capsys.readouterr().out
    assert re.search(r"  2 × down +40 → 24", printed)
    assert "inputs in common save" in printed
    assert "to sketch with rank 8" in printed
