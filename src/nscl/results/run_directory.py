"""The folder of one run: its files, its configuration, and whether it is finished.

::

    runs/<benchmark>-<method>-<seed>-<hash8>/
      config.json  metrics.jsonl  spectra.npz  checkpoint/  result.json
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from nscl.atomic import LEFTOVER_PREFIX, remove_leftovers, sync_folder
from nscl.results.errors import RunFinishedError, RunMismatchError
from nscl.results.lock import RunLock
from nscl.results.naming import canonical_json
from nscl.results.records.config_file import ConfigFile
from nscl.results.records.result import Result
from nscl.results.writing import cannot_write, make_folder, write_json


class RunDirectory:
    """The files of the run in the folder ``path``; reading it writes nothing.

    >>> import tempfile
    >>> root = tempfile.TemporaryDirectory()
    >>> run = RunDirectory.create(root.name, benchmark="split-digits-5", method="ewc", seed=0,
    ...                           config={"epochs": 2}, environment={})
    >>> run.name, run.is_finished
    ('split-digits-5-ewc-0-e2826b04', False)
    >>> root.cleanup()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.spectra_path = self.path / "spectra.npz"
        self.checkpoint_path = self.path / "checkpoint"
        self.result_path = self.path / "result.json"
        self.lock_path = self.path / ".lock"

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @classmethod
    def create(
        cls,
        root: str | Path,
        *,
        benchmark: str,
        method: str,
        seed: int,
        config: Mapping[str, Any],
        environment: Mapping[str, Any],
    ) -> Self:
        """Make the folder of a run under ``root``, or return it when the same run is there already.

        A folder of that name with another configuration, or with foreign files, is a
        RunMismatchError. The environment of the first start is kept.
        """
        new = ConfigFile(
            benchmark=benchmark, method=method, seed=seed, config=config, environment=environment
        )
        run = cls(Path(root) / new.name)
        run.start(new)
        return run

    def start(self, new: ConfigFile) -> None:
        """Make the folder of a new run, or check that the run in it is the same."""
        if self.config_path.exists():
            self._refuse_other(new)
        else:
            self._make(new)

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.name

    @property
    def is_finished(self) -> bool:
        """Whether the result has been written, which is the last thing a run does."""
        return self.result_path.exists()

    def identity(self) -> ConfigFile:
        """Read ``config.json``: benchmark, method, seed, configuration and environment."""
        return ConfigFile.read(self.config_path)

    def config(self) -> dict[str, Any]:
        """Read the configuration of the run."""
        return dict(self.identity().config)

    def result(self) -> Result:
        """Read the result of a finished run."""
        return Result.read(self.result_path)

    def write_result(self, result: Result) -> None:
        """Write the result, once and last; afterwards the run counts as finished."""
        if self.is_finished:
            raise RunFinishedError(f"{self.result_path} exists already and is kept")
        mine, its = canonical_json(self.config()), canonical_json(result.config)
        if mine != its:
            raise RunMismatchError(f"{self.path} has {mine}, the result to be written has {its}")
        write_json(self.result_path, result.to_dict())

    @contextmanager
    def lock(self) -> Iterator[Self]:
        """Work on the run alone; temporary files of killed processes are removed."""
        with RunLock(self.lock_path):
            remove_leftovers(self.path)
            remove_leftovers(self.checkpoint_path)
            yield self

    def _make(self, new: ConfigFile) -> None:
        make_folder(self.path)
        try:
            sync_folder(self.path.parent)
            foreign = sorted(p.name for p in self.path.iterdir() if not _is_ours(p))
        except OSError as error:
            raise cannot_write(self.path, error) from error
        if foreign:
            raise RunMismatchError(
                f"{self.path} has no config.json but holds {', '.join(foreign[:3])}: "
                "it is not a run; move it away or choose another folder"
            )
        write_json(self.config_path, new.to_dict())

    def _refuse_other(self, new: ConfigFile) -> None:
        difference = self.identity().difference(new)
        if difference:
            raise RunMismatchError(
                f"{self.path} belongs to another configuration ({difference}): "
                "choose another folder for the new one"
            )


def _is_ours(path: Path) -> bool:
    return path.name == ".lock" or path.name.startswith(LEFTOVER_PREFIX)
