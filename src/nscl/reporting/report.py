"""A report from runs to files: tables, figures and the page."""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nscl.reporting.errors import ReportError
from nscl.reporting.folder import ReportFolder
from nscl.reporting.formats import csv_runs, csv_tables, latex, markdown
from nscl.reporting.gather import Gathered, gather
from nscl.reporting.missing import LeftOut
from nscl.reporting.page import render
from nscl.reporting.series import Section, sections
from nscl.reporting.tables import make_table
from nscl.results import Skipped, slug

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Written:
    """What a report consists of, and what it could not show."""

    page: Path
    files: tuple[str, ...]
    runs: int
    left_out: tuple[tuple[str, LeftOut], ...]  # section and figure
    skipped: tuple[Skipped, ...]


def write_report(paths: Iterable[str | Path], out: str | Path) -> Written:
    """Write the report of the runs under ``paths`` into the folder ``out``.

    >>> write_report(["runs"], "report").page  # doctest: +SKIP
    PosixPath('report/report.html')
    """
    paths = list(paths)
    found = gather(paths)
    if not found.runs:
        raise ReportError(_nothing(paths, found))
    folder = ReportFolder(out)
    parts = sections(found.runs)
    files, told = [], []
    for name, data in _tables(parts, found):
        folder.write(name, data)
        files.append(name)
    for section, item in _figures(parts):
        if isinstance(item, LeftOut):
            told.append((section.title, item))
        else:
            folder.write(*item)
            files.append(item[0])
    missing = {s.title: [t for title, t in told if title == s.title] for s in parts}
    folder.write("report.html", render(parts, told=missing, skipped=found.skipped))
    folder.finish()
    return Written(
        page=folder.path / "report.html",
        files=(*files, "report.html"),
        runs=len(found.runs),
        left_out=tuple(told),
        skipped=found.skipped,
    )


def _nothing(paths: Sequence[str | Path], found: Gathered) -> str:
    where = ", ".join(map(str, paths)) or "no path"
    reasons = "".join(f"; {path}: {reason}" for path, reason in found.skipped[:2])
    return f"there is no run in {where}{reasons}: give run folders, folders of them or result files"


def _tables(parts: Sequence[Section], found: Gathered) -> Iterator[tuple[str, str]]:
    tables = [table for table in map(make_table, parts) if table.rows]
    yield "tables.md", markdown(tables)
    yield "tables.tex", latex(tables)
    yield "tables.csv", csv_tables(tables)
    yield "runs.csv", csv_runs(found.runs)


def _figures(
    parts: Sequence[Section],
) -> Iterator[tuple[Section, LeftOut | tuple[str, bytes]]]:
    from nscl.reporting import figures  # matplotlib takes a second; the live page does without

    with figures.styled():
        for section, name in zip(parts, _names(parts), strict=True):
            prefix = f"figures/{name}-"
            for item in figures.draw(section):
                if isinstance(item, LeftOut):
                    yield section, item
                    continue
                kind_of_figure, figure = item
                for kind in ("svg", "png"):
                    yield section, (f"{prefix}{kind_of_figure}.{kind}", _saved(figure, kind))


def _names(parts: Sequence[Section]) -> list[str]:
    """A name for the files of each section; names that became one are numbered."""
    texts = [(part.benchmark, part.preset, part.stream) for part in parts]
    slugs = ["-".join(slug(text) for text in each if text) for each in texts]
    taken: set[str] = set()
    for i, name in enumerate(slugs):
        free = (f"{name}-{number}" for number in range(2, len(slugs) + 2))
        slugs[i] = name if name not in taken else next(n for n in free if n not in {*slugs, *taken})
        taken.add(slugs[i])
    return slugs


def _saved(figure: "Figure", kind: str) -> bytes:
    buffer = io.BytesIO()
    # No date: the same runs make the same bytes.
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
