"""``nscl run``: train a stream of tasks."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nscl.training.config import RunConfig


def run(
    settings: Annotated[RunConfig, Parameter(name="*", show_default=False)],
    /,
    *,
    config: Path | None = None,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Train a stream of tasks with one method; a broken run continues, a finished one is skipped.

    Options of the method are --method.NAME, see `nscl list methods`. A TOML file has the same
    names; the command line wins over the file, the file over the preset.

    Parameters
    ----------
    settings
        Everything about the run.
    config
        A TOML file with settings.
    quiet
        Show nothing but errors.
    json
        Print one JSON object per line.
    """
    from nscl.training.display import choose_display
    from nscl.training.experiment import run as run_experiment
    from nscl.training.prepare import build_config

    said = settings.model_dump(exclude_unset=True, exclude={"benchmark"})
    complete = build_config(settings.benchmark, said, file=config)
    display = choose_display(quiet=quiet, as_json=json)
    result = run_experiment(complete, display=display)
    if not quiet and not json:
        print(f"result: {complete.out / result.directory}")
    return 0
