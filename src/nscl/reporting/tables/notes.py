"""What stands below a table: signs, sources, caveats and the remarks of runs."""

from nscl.reporting.tables.rows import LEGEND, Table
from nscl.reporting.tables.timing import caveat
from nscl.results import by_remark


def notes(table: Table) -> list[str]:
    """Notes below the table."""
    lines = signs(table)
    if times := caveat([row.series for row in table.rows]):
        lines.append(times)
    if table.sources:
        lines.append(
            "Published numbers are full-scale results of others, not of these runs: "
            + "; ".join(table.sources)
            + "."
        )
    if table.section.unlike:
        lines.append(f"Not alike in all rows: {', '.join(table.section.unlike)}.")
    if table.section.common_settings:
        lines.append(f"Common settings: {'; '.join(table.section.common_settings)}.")
    noted = by_remark((row.series.label, row.series.remarks) for row in table.rows)
    return lines + [f"{line[0].upper()}{line[1:]}." for line in noted]


def signs(table: Table) -> list[str]:
    """What marks mean."""
    lines = [LEGEND] if table.marks_data else []
    if any(row.seeds > 1 for row in table.rows):
        lines.append("Mean ± sample standard deviation over seeds.")
    if any(cell.is_best for row in table.rows for cell in row.cells):
        lines.append("Bold: the best of its column and group.")
        if any(row.series.has_unlearned_tasks for row in table.rows):
            lines.append("BWT and forgetting of rows at chance are not compared.")
    return lines
