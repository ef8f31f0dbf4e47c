"""TensorBoard's event files in the folder of a run, for ``tensorboard --logdir runs``.

A killed process leaves events that are trained, and written, again; nothing can be cut out of an
event file. A process that continues a run therefore writes a new file from the first record on,
and removes those before it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from nscl.results.writing import cannot_write


class TensorBoardFiles:
    """Event files in ``folder``, one step of the axis per step of the optimizer."""

    known = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with self._writing():
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
            # An open TensorBoard drops what it has read from the removed files.
            self._writer = SummaryWriter(str(folder), purge_step=0)

    def write(self, number: int, steps: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve, and hand all to the system."""
        with self._writing():
            for name, value in values.items():
                self._writer.add_scalar(name, value, steps)
            self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        with self._writing():
            self._writer.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise cannot_write(self.folder, error) from error
