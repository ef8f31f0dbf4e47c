"""The one table, and the same as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.figure import Figure
from nscl.results import write_json


def as_table(figures: Sequence[Figure]) -> Table:
    """Figures as a rich table; a missed target is red."""
    table = Table("figure", "ours", "reference", "ratio", "target", "met", title="nscl benchmarks")
    for column in table.columns[1:4]:
        column.justify = "right"
    for figure in figures:
        table.add_row(
            f"[bold]{figure.name}[/bold]\n{figure.title}\n[dim]{figure.note}[/dim]".rstrip(),
            f"{number(figure.ours)} {figure.unit}",
            f"{number(figure.reference)} {figure.unit}",
            number(figure.ratio),
            str(figure.target or ""),
            {True: "[green]yes[/green]", False: "[bold red]NO[/bold red]", None: ""}[figure.met],
            end_section=True,
        )
    return table


def number(value: float) -> str:
    """Three digits that mean something.

    >>> number(0.0), number(3.14159), number(271.828), number(6543.2)
    ('0', '3.14', '272', '6543')
    """
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def save(
    path: Path, figures: Sequence[Figure], machine: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Write everything a reader needs to judge the numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = [figure.to_dict() for figure in figures]
    write_json(path, {"machine": machine, "settings": settings, "figures": found})
