"""``nscl data``: which data sets are here, whether they are complete, and how to get them."""

from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table


def data(
    what: Literal["list", "check", "fetch"],
    names: tuple[str, ...] = (),
    /,
    *,
    data_dir: Path | None = None,
) -> int:
    """List, check or fetch data sets.

    Parameters
    ----------
    what
        list what there is, check files by checksum, or fetch them.
    names
        Benchmarks, such as split-cifar100-10; all of them if none is named (not for fetch).
    data_dir
        Look there first; $NSCL_DATA and the user's cache come after.
    """
    from nscl.data import list_benchmarks
    from nscl.data.catalogue import is_own
    from nscl.data.disk.fetch import check
    from nscl.errors import NsclError

    if what == "fetch":
        if not names:
            raise NsclError("nothing to fetch: name it, as in nscl data fetch split-cifar100-10")
        for name in names:
            _fetch(name, data_dir)
        return 0
    chosen = names or tuple(b.name for b in list_benchmarks() if not is_own(b.name))
    table = Table(box=None, pad_edge=False)
    for column in ("benchmark", "data set", "state", "where"):
        table.add_column(column, overflow="fold")
    broken = False
    for name in chosen:
        status = check(name, data_dir)
        broken |= status.state == "corrupt"
        table.add_row(name, status.title, status.state, str(status.path or ""))
    Console(highlight=False).print(table)
    return 2 if broken and what == "check" else 0


def _fetch(name: str, data_dir: Path | None) -> None:
    from nscl.data.disk.fetch import fetch

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(),
               TransferSpeedColumn())  # fmt: skip
    with Progress(*columns) as progress:
        bars: dict[str, object] = {}

        def report(file: str, done: int, total: int | None) -> None:
            if file not in bars:
                bars[file] = progress.add_task(file, total=total)
            progress.update(bars[file], completed=done, total=total)  # type: ignore[arg-type]

        status = fetch(name, data_dir, progress=report)
    Console(highlight=False).print(f"{name}: {status.state} in {status.path}")
