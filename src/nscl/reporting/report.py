"""A report from runs to files: tables, figures and the page."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nscl.reporting.errors import ReportError
from nscl.reporting.figures import Job, not_drawn, plans, rendered
from nscl.reporting.figures.digests import figure_digest
from nscl.reporting.folder import ReportFolder
from nscl.reporting.gather import FoundRuns, gather
from nscl.reporting.page.html import render
from nscl.reporting.plot_data.missing import LeftOut, left_out
from nscl.reporting.plot_data.selection import check_names
from nscl.reporting.series import Section, sections
from nscl.reporting.tables.formats import csv_runs, csv_tables, markdown
from nscl.reporting.tables.latex import latex
from nscl.reporting.tables.rows import make_table
from nscl.results import Skipped, slug

Figures = Literal["none", "svg", "all"]
_KINDS: dict[Figures, tuple[str, ...]] = {"none": (), "svg": ("svg",), "all": ("svg", "png")}
_NOT_WANTED = LeftOut("SVG and PNG files", "none are drawn (figures: none); the charts are here")


@dataclass(frozen=True)
class Written:
    """What a report consists of, and what it could not show."""

    page: Path
    files: tuple[str, ...]
    runs: int
    left_out: tuple[tuple[str, LeftOut], ...]  # section and figure
    skipped: tuple[Skipped, ...]
    kept: tuple[str, ...] = ()  # files of figures that an earlier report had already


def write_report(
    paths: Iterable[str | Path],
    out: str | Path,
    *,
    figures: Figures = "all",
    processes: int = 1,
    highlight: Sequence[str] = (),
) -> Written:
    """Write the report of the runs under ``paths`` into the folder ``out``.

    Parameters
    ----------
    paths
        Folders of runs, folders that hold many of them, or result files.
    out
        The report's folder: new, empty, or an earlier report, of which unchanged figures are kept.
    figures
        ``"all"``: each figure as SVG and PNG; ``"svg"``; or ``"none"``, for the page and the tables
        alone.
    processes
        How many processes draw at most. With more than one, a script must begin with
        ``if __name__ == "__main__":``, as with all of Python's processes.
    highlight
        Rows or methods whose curves stand out where there are more than eight, besides the best and
        the worst.

    >>> write_report(["runs"], "report").page  # doctest: +SKIP
    PosixPath('report/report.html')
    """
    paths = list(paths)
    if figures not in _KINDS:
        raise ReportError(f"figures={figures!r} is unknown: choose none, svg or all")
    found = gather(paths)
    if not found.runs:
        raise ReportError(_nothing(paths, found))
    parts = sections(found.runs)
    check_names(highlight, parts)
    folder = ReportFolder(out)
    files = []
    for name, data in _tables(parts, found):
        folder.write(name, data)
        files.append(name)
    drawn = _draw(folder, parts, _KINDS[figures], processes, highlight)
    missing = {s.title: [item for title, item in drawn.left_out if title == s.title] for s in parts}
    folder.write(
        "report.html", render(parts, missing=missing, skipped=found.skipped, highlight=highlight)
    )
    folder.finish()
    return Written(
        page=folder.path / "report.html",
        files=(*files, *drawn.files, *drawn.kept, "report.html"),
        runs=len(found.runs),
        left_out=tuple(drawn.left_out),
        skipped=found.skipped,
        kept=tuple(drawn.kept),
    )


def _nothing(paths: Sequence[str | Path], found: FoundRuns) -> str:
    where = ", ".join(map(str, paths)) or "no path"
    reasons = "".join(f"; {path}: {reason}" for path, reason in found.skipped[:2])
    return f"there is no run in {where}{reasons}: give run folders, folders of them or result files"


def _tables(parts: Sequence[Section], found: FoundRuns) -> Iterator[tuple[str, str]]:
    tables = [table for table in map(make_table, parts) if table.rows]
    yield "tables.md", markdown(tables)
    yield "tables.tex", latex(tables)
    yield "tables.csv", csv_tables(tables)
    yield "runs.csv", csv_runs(found.runs)


@dataclass(frozen=True)
class _Drawn:
    """Files of figures, written now or kept, and figures without files."""

    files: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    left_out: list[tuple[str, LeftOut]] = field(default_factory=list)


@dataclass(frozen=True)
class _Wanted:
    """A figure that is not there yet, or no longer shows what the runs have."""

    section: str
    path: str  # without the format
    digest: str
    job: Job


def _draw(
    folder: ReportFolder, parts: Sequence[Section], kinds: Sequence[str], processes: int,
    highlight: Sequence[str],
) -> _Drawn:  # fmt: skip
    """Draw and write the figures of all sections that are not there already."""
    drawn = _Drawn()
    wanted = [
        each
        for section, name in zip(parts, _names(parts), strict=True)
        for each in _wanted(folder, section, f"figures/{name}-", kinds, drawn, highlight)
    ]
    results = rendered([each.job for each in wanted], processes=processes)
    for each, result in zip(wanted, results, strict=True):
        if isinstance(result, LeftOut):
            drawn.left_out.append((each.section, result))
            continue
        for kind, data in result.items():
            folder.write(f"{each.path}.{kind}", data, digest=each.digest)
            drawn.files.append(f"{each.path}.{kind}")
    return drawn


def _wanted(
    folder: ReportFolder, section: Section, prefix: str, kinds: Sequence[str], drawn: _Drawn,
    highlight: Sequence[str],
) -> Iterator[_Wanted]:  # fmt: skip
    """The figures of a section to be drawn, each in the formats that cannot be kept."""
    absent = left_out(section)
    missing = {each.name for each in absent}
    others = not_drawn(section, missing) if kinds else [_NOT_WANTED]
    drawn.left_out.extend((section.title, each) for each in (*absent, *others))
    for plan in plans(section, missing, highlight) if kinds else ():
        path, shows = f"{prefix}{plan.name}", figure_digest(plan)
        kept = [kind for kind in kinds if folder.keep(f"{path}.{kind}", shows)]
        drawn.kept.extend(f"{path}.{kind}" for kind in kept)
        if left := [kind for kind in kinds if kind not in kept]:
            yield _Wanted(section.title, path, shows, (plan, left))


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
