"""Where tables are printed: as wide as the terminal, or one line per row where there is none."""

from rich.console import Console

WIDE = 100_000  # columns: more than any table has


def wide_console() -> Console:
    """A console that neither folds nor cuts lines where output is not a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDE)
