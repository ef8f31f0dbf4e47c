"""``nscl resume``: continue a run from its folder alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscl.cli.whole import Whole
from nscl.errors import NsclError

if TYPE_CHECKING:
    from nscl.results import ConfigFile
    from nscl.training.config import RunConfig


def resume(
    run: Path,
    /,
    *,
    data_dir: Path | None = None,
    device: str | None = None,
    threads: Whole | None = None,
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
    from nscl.results import RunDirectory
    from nscl.training.config import RunConfig, merge, validated
    from nscl.training.display import choose_display
    from nscl.training.experiment import run as run_experiment
    from nscl.training.prepare import complete

    directory = RunDirectory(run)
    if not directory.config_path.exists():
        raise NsclError(f"{run} is no run: it has no config.json")
    identity = directory.identity()
    place = {k: identity.environment[k] for k in ("device", "threads") if k in identity.environment}
    said = {"data_dir": data_dir, "device": device, "threads": threads}
    spoken = merge(merge(dict(identity.config), place), {**said, "out": run.parent})
    config = complete(validated(RunConfig, spoken))
    _check_same(run, identity, config)
    finished = directory.is_finished
    result = run_experiment(config, display=choose_display(quiet=quiet, as_json=json))
    if finished and not quiet and not json:
        print(f"{run} is finished: ACC {result.acc:.2f} %, BWT {result.bwt:+z.2f}")
    return 0


def _check_same(run: Path, written: "ConfigFile", config: "RunConfig") -> None:
    """Anything but the very run in this folder would be begun anew, in another folder."""
    from nscl.results import run_name

    before, now = _flat(written.config), _flat(config.identity())
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if changed:
        raise NsclError(
            f"{run} cannot be continued: its config.json is of another version of nscl, for which "
            f"{', '.join(changed)} meant something else; use that one, or start anew with nscl run"
        )
    name = run_name(
        benchmark=config.benchmark, method=config.method, seed=config.seed, config=written.config
    )
    if run.resolve().name != name:
        raise NsclError(f"{run} cannot be continued under that name: rename the folder to {name}")


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    parts = {k: v if isinstance(v, Mapping) else {"": v} for k, v in config.items()}
    return {f"{k}.{inner}".rstrip("."): v for k, part in parts.items() for inner, v in part.items()}
