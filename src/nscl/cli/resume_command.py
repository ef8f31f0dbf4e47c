"""``nscl resume``: continue a run from its folder alone."""

import sys
from pathlib import Path

from nscl.errors import NsclError


def resume(
    run: Path,
    /,
    *,
    data_dir: Path | None = None,
    device: str | None = None,
    threads: int | None = None,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Continue a run that was interrupted, bit for bit as if it had not been.

    Parameters
    ----------
    run
        The run's folder, such as runs/split-digits-5-adam-nscl-0-1a2b3c4d.
    data_dir
        Where the data are, if not where they were.
    device
        Another device than the first time.
    threads
        Another number of threads.
    quiet
        Show nothing but errors.
    json
        Print one JSON object per line.
    """
    sys.path.insert(0, "")  # package.module:Class of the folder one works in
    from nscl.results import RunDirectory
    from nscl.training.config import RunConfig, merge, validated
    from nscl.training.display import choose_display
    from nscl.training.experiment import run as run_experiment

    directory = RunDirectory(run)
    if not directory.config_path.exists():
        raise NsclError(f"{run} is no run: it has no config.json")
    identity = directory.identity()
    place = {k: identity.environment[k] for k in ("device", "threads") if k in identity.environment}
    said = {"data_dir": data_dir, "device": device, "threads": threads}
    config = validated(
        RunConfig, merge(merge(dict(identity.config), place), {**said, "out": run.parent})
    )
    finished = directory.is_finished
    result = run_experiment(config, display=choose_display(quiet=quiet, as_json=json))
    if finished and not quiet and not json:
        print(f"{run} is finished: ACC {result.acc:.2f} %, BWT {result.bwt:+z.2f}")
    return 0
