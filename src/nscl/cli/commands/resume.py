"""``nscl resume``: continue a run from its folder alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from nscl.cli.run_settings import given, nothing_given, settings_type
from nscl.errors import NsclError

if TYPE_CHECKING:
    from nscl.results import ConfigFile
    from nscl.training.config.schema import RunConfig
    from nscl.training.config.schema import RunConfig as ResumeSettings
else:
    ResumeSettings = settings_type(
        ["device", "threads", "data_dir", "track"],
        help={
            "device": "Another device than the first time.",
            "threads": "Another number of threads.",
            "data_dir": "Where the data are, if not where they were.",
            "track": "Another tracker than the first time, or none.",
        },
    )

SAME_PLACE = nothing_given(ResumeSettings)
PLACE = ("device", "threads", "track")  # what config.json has of the first time


def resume(
    run: Path,
    /,
    *,
    place: Annotated[ResumeSettings, Parameter(name="*", show_default=False)] = SAME_PLACE,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Continue a run that was interrupted, bit for bit as if it had not been.

    Parameters
    ----------
    run
        The run's folder, such as runs/split-digits-5-adam-nscl-0-1a2b3c4d.
    place
        Where it runs now.
    quiet
        Show nothing but errors.
    json
        Print one JSON object per line.
    """
    from nscl.results import RunDirectory
    from nscl.training.config.build import complete
    from nscl.training.config.layers import merge
    from nscl.training.config.schema import RunConfig
    from nscl.training.config.validation import validated
    from nscl.training.display.display import choose_display
    from nscl.training.experiment import run as run_experiment

    directory = RunDirectory(run)
    if not directory.config_path.exists():
        raise NsclError(f"{run} is not a run: it has no config.json")
    record = directory.identity()
    before = {k: record.environment[k] for k in PLACE if k in record.environment}
    settings = merge({**record.config, **before}, {**given(place), "out": run.parent})
    config = complete(validated(RunConfig, settings))
    _check_same(run, record, config)
    finished = directory.is_finished
    result = run_experiment(config, display=choose_display(quiet=quiet, as_json=json))
    if finished and not quiet and not json:
        print(f"{run} is finished: ACC {result.acc:.2f} %, BWT {result.bwt:+z.2f}")
    return 0


def _check_same(run: Path, written: "ConfigFile", config: "RunConfig") -> None:
    """Refuse to continue what would start from the beginning, in another folder."""
    from nscl.results import flat

    before, now = flat(written.config), flat(config.identity())
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if changed:
        raise NsclError(
            f"{run} cannot be continued: its config.json is of another version of nscl, for which "
            f"{', '.join(changed)} meant something else; use that version, or start a new run"
        )
    if run.resolve().name != written.name:
        raise NsclError(
            f"{run} cannot be continued under that name: rename the folder to {written.name}"
        )
