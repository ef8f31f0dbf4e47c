"""``nscl run``: train a stream of tasks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from nscl.cli.run_settings import all_settings_but, given, settings_type

if TYPE_CHECKING:
    from nscl.training.config.schema import RunConfig as RunSettings
else:
    RunSettings = settings_type(all_settings_but())


def run(
    settings: Annotated[RunSettings, Parameter(name="*", show_default=False)],
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
    from nscl.training.config.build import build_config
    from nscl.training.display.display import choose_display
    from nscl.training.experiment import run as run_experiment

    complete = build_config(settings.benchmark, given(settings), file=config)
    display = choose_display(quiet=quiet, as_json=json)
    result = run_experiment(complete, display=display)
    if not quiet and not json:
        print(f"result: {complete.out / result.directory}")
    return 0
