"""Measured forgetting as text: a table, and beside its total all that the total cannot contain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING

from nscl.core.report.names import MANY, listed, one_name, pattern_of
from nscl.core.report.statistics import describe_large_shifts, describe_shifts
from nscl.core.report.tables import number, percent, table

if TYPE_CHECKING:
    from nscl.core.report.forgetting import (
        Forgetting,
        LayerForgetting,
        ParameterForgetting,
        ProbeForgetting,
        Uncounted,
    )


@dataclass(frozen=True)
class _Line:
    """A line of the table: a layer or a parameter, or several of one pattern."""

    names: tuple[str, ...]
    drift: float | None = None
    relative: float | None = None
    weighed: float | None = None
    loss: float | None = None
    moved: float | None = None

    def cells(self, columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(number(getattr(self, column)) for column in columns)

    @property
    def rank(self) -> float:
        """The larger, the worse."""
        return max(self.loss or 0.0, self.relative or 0.0)


def forgetting_lines(found: "Forgetting") -> list[str]:
    """All lines; beyond ``MANY`` layers by pattern, those that moved most first."""
    lines = [*map(_of_layer, found.layers), *map(_of_parameter, found.parameters)]
    total = _of_layer(found.total)
    columns = ["drift", "relative"]
    if any(line.loss is not None for line in (*lines, total)):
        columns += ["weighed", "loss"]
    if found.parameters:
        columns.append("moved")
    is_long = len(lines) > MANY
    rows = [_row(line, columns, is_long) for line in (_by_pattern(lines) if is_long else lines)]
    head = ("layers", "number", *columns) if is_long else ("layer", *columns)
    last = (total.names[0], *([""] if is_long else []), *total.cells(columns))
    shown = table(head, [*rows, last], text=1)
    shown += describe_shifts(found.statistics)
    shown += describe_large_shifts(found.statistics)
    shown += describe_uncounted(found.uncounted)
    return [*shown, *describe_probe(found.probe)]


def _row(line: _Line, columns: Sequence[str], is_long: bool) -> tuple[str, ...]:
    several = len(line.names) > 1
    name = pattern_of(line.names[0]) if several else line.names[0]
    count = [str(len(line.names))] if is_long else []
    return (name, *count, *line.cells(columns))


def _of_layer(layer: "LayerForgetting") -> _Line:
    return _Line((layer.name,), layer.drift, layer.relative, layer.weighed, layer.loss)


def _of_parameter(one: "ParameterForgetting") -> _Line:
    return _Line((one.name,), weighed=one.weighed, loss=one.loss, moved=one.moved)


def _by_pattern(lines: Sequence[_Line]) -> list[_Line]:
    """Drift and loss are added up, shares are the largest of the pattern."""
    found: dict[str, list[_Line]] = {}
    for line in lines:
        found.setdefault(pattern_of(line.names[0]), []).append(line)
    return sorted(map(_together, found.values()), key=lambda line: -line.rank)


def _together(lines: Sequence[_Line]) -> _Line:
    def known(column: str) -> list[float]:
        values = (getattr(line, column) for line in lines)
        return [value for value in values if value is not None]

    sums = {column: sum(known(column)) if known(column) else None for column in ("drift", "loss")}
    shares = {column: max(known(column), default=None) for column in _SHARES}
    return _Line(tuple(name for line in lines for name in line.names), **sums, **shares)


_SHARES = ("relative", "weighed", "moved")


def describe_uncounted(uncounted: Sequence["Uncounted"]) -> Iterator[str]:
    """A line for each reason, with those that moved most first."""
    by_reason: dict[str, list[Uncounted]] = {}
    for one in uncounted:
        by_reason.setdefault(one.why, []).append(one)
    for why, found in by_reason.items():
        named = sorted(starmap(_moved, _patterns(found)), key=lambda one: -one[0])
        yield f"not counted: {listed([words for _, words in named])}: {why}"


def _patterns(found: "Sequence[Uncounted]") -> list[tuple[str, "list[Uncounted]"]]:
    """A few by name, many by pattern."""
    by_pattern: dict[str, list[Uncounted]] = {}
    for one in found:
        by_pattern.setdefault(one.name if len(found) <= 4 else pattern_of(one.name), []).append(one)
    return list(by_pattern.items())


def _moved(pattern: str, found: "Sequence[Uncounted]") -> tuple[float, str]:
    """The largest movement of a pattern, and the words for it."""
    known = [one.moved for one in found if one.moved is not None]
    name = one_name(pattern, [one.name for one in found])
    if not known:
        return float("inf"), name
    by = "moved by up to" if len(found) > 1 else "moved by"
    return max(known), f"{name} {by} {percent(max(known))}"


def describe_probe(probe: "ProbeForgetting | None") -> Iterator[str]:
    """What has become of the model's own output on a batch."""
    if probe is not None:
        words = f"output on the probe ({probe.rows} rows): drift {probe.drift:.3g}, "
        words += f"relative {probe.relative:.3g}"
        if probe.kl is not None and probe.agreement is not None:
            words += f"; KL {probe.kl:.3g}, {percent(probe.agreement)} of the answers as before"
        yield words
