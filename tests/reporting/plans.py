"""Runs as the plan of ablations makes them, on disk in a moment."""

from pathlib import Path
from typing import Any

from nscl.engines.plan_file import PlanFile
from tests.reporting.making import make_run

ABLATIONS = Path("experiments/split-cifar100-10-ablations.toml")


def make_plan(root: Path, *, named: bool) -> list[str]:
    """Runs of the plan of ablations; returns the names of its rows."""
    plan, _ = PlanFile.read(ABLATIONS, {}).plan({})
    for job in plan.jobs():
        config: dict[str, Any] = job.config.identity()
        label = job.config.label if named else None
        who = {"benchmark": config["benchmark"], "seed": config["seed"]}
        make_run(root, config["method"], **who, settings=config, label=label)
    return [row.label for row in plan.variants]
