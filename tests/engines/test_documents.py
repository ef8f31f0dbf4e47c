"""Commands in the documents and shipped plans are accepted up to the first run."""

import re
import shlex
from pathlib import Path

import pytest

from nscl.cli.app import call
from nscl.engines.plan_file import PlanFile

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(
    r"^\$ nscl ((?:compare|sweep|tune) .*)$",
    (ROOT / "docs/comparing.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize("command", [c for c in COMMANDS if "--engine ray" not in c])
def test_commands_of_the_guide_are_accepted(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned for real; what would start processes is stopped at the door."""
    planned: list[int] = []

    class Reached(Exception):  # noqa: N818
        """The plan got as far as its first process."""

    def stop(jobs: list[object], *_: object) -> None:
        planned.append(len(jobs))
        raise Reached

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nscl.cli.many_runs.run_many.check_data", lambda *_: None)
    monkeypatch.setattr("nscl.engines.plan.check_data", lambda *_: None)
    monkeypatch.setattr("nscl.cli.many_runs.run_many.execute", stop)
    monkeypatch.setattr("nscl.engines.execute.execute", stop)
    words = shlex.split(command.replace("experiments/", f"{ROOT}/experiments/"))
    with pytest.raises(Reached):
        call(words)
    assert planned[0] > 0


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.stem
)
def test_shipped_plans_say_command_cost_and_figures(path: Path) -> None:
    file = PlanFile.read(path, {})
    assert file.description
    assert path.name in file.command
    labels = {job.label for job in file.plan({})[0].jobs()}
    assert set(file.expected) <= labels
    assert bool(file.cost) == bool(file.expected)
    assert file.expected or "not run yet" in file.description
