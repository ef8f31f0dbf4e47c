"""The result in one sentence: how many methods, the best of those without old data, the others."""

from nscl.reporting.tables.rows import Cell, Table, TableRow


def sentence(table: Table) -> str:
    """The sentence above a table; empty if it has no rows."""
    if not table.rows:
        return ""
    groups = table.groups
    if len(table.rows) == 1:
        return f"{_reached(table, table.rows[0])}."
    parts = []
    if "without" in groups:
        parts.append(f"best without old data: {_reached(table, groups['without'][0])}")
    if "with" in groups:
        parts.append(f"best with old data: {_reached(table, groups['with'][0])}")
    if "bounds" in groups:
        parts.append(f"for comparison: {_reached(table, groups['bounds'][0])}")
    return f"Of {_count(table)}, {'; '.join(parts)}."


def _count(table: Table) -> str:
    methods = len({row.series.method for row in table.rows})
    many = f"{methods} method{'s' if methods > 1 else ''}"
    return many if len(table.rows) == methods else f"{len(table.rows)} variants of {many}"


def _reached(table: Table, row: TableRow) -> str:
    cells = dict(zip((column.key for column in table.columns), row.cells, strict=True))
    seeds = f"{row.seeds} seeds" if row.seeds > 1 else "one seed"
    return (
        f"{row.series.label} with ACC {_percent(cells['acc'])}, BWT {cells['bwt'].text} ({seeds})"
    )


def _percent(cell: Cell) -> str:
    return f"{cell.text} %"
