"""Plain-text tables: columns of text to the left, columns of numbers to the right."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, text: int = 3) -> list[str]:
    """The lines of a table whose first ``text`` columns are text.

    >>> for line in table(("layer", "free"), [("a", "12")], text=1):
    ...     print(line)
    layer  free
    ─────  ────
    a        12
    """
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if i < text else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("─" * width for width in widths), *(line(row) for row in rows)]


def number(value: float | None) -> str:
    """Three digits, or nothing for what is not there."""
    return "" if value is None else f"{value:.3g}"


def percent(share: float) -> str:
    """A share in percent, with enough digits to distinguish a small one from none.

    >>> percent(0.123), percent(0.00002)
    ('12.3 %', '0.002 %')
    """
    return f"{100 * share:.1f} %" if share >= 0.001 or share == 0 else f"{100 * share:.1g} %"
