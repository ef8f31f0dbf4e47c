"""Tuning from the trials to the record, for one method or several in one queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from nscl.engines.execute import PlanOutcome
from nscl.engines.job import Ending, Job
from nscl.engines.tuning.trials import TRIALS, TuningTrial, chosen_settings, trials_of, tuning_plan
from nscl.engines.tuning.tuned_file import (
    TrialRecord,
    Tuned,
    best_trial,
    known_trials,
    tuned_path,
)
from nscl.errors import NsclError
from nscl.methods.registry import load_method
from nscl.results.writing import refuse_dangling_link
from nscl.training.config.build import build_config
from nscl.training.config.layers import Settings
from nscl.training.config.presets import default_preset
from nscl.training.config.tuned_values import ADOPTED, adopt, check_adoptable


@dataclass(frozen=True)
class Tuning:
    """The trials of one method: which are on record, which are to be run."""

    method: str
    trials: tuple[TuningTrial, ...]
    jobs: tuple[Job, ...]
    path: Path
    known: Mapping[str, TrialRecord]
    options: Settings = field(default_factory=dict)  # of the method, the same for all trials

    @classmethod
    def prepare(
        cls,
        method: str,
        benchmark: str,
        settings: Mapping[str, Any],
        *,
        root: Path,
        trials: int = TRIALS,
        side_by_side: int | None = 1,
        force: bool = False,
    ) -> "Tuning":
        """Plan the trials; ``settings`` hold for all of them, ``root`` is the folder of records."""
        if trials < 1:
            raise NsclError(f"{trials} trials: every method needs at least one")
        refuse_dangling_link(root)  # before anything is trained
        options = settings.get("options") or {}
        found = _trials(method, benchmark, settings, trials)
        jobs = tuning_plan(benchmark, found, settings).jobs(side_by_side=side_by_side)
        preset = jobs[0].config.preset
        path = tuned_path(root, benchmark=benchmark, preset=preset, method=method)
        known = known_trials(path, {job.name for job in jobs}, force=force)
        return cls(method, tuple(found), tuple(jobs), path, known, options)

    @cached_property
    def open_jobs(self) -> list[Job]:
        """Trials that are not on record."""
        return [job for job in self.jobs if job.name not in self.known]

    def conclude(self, endings: Mapping[str, Ending]) -> Tuned | None:
        """Write the record with the choice; None while trials were stopped or killed."""
        records = [
            self.known.get(job.name) or _record(job, trial, endings.get(job.name))
            for job, trial in zip(self.jobs, self.trials, strict=True)
        ]
        complete = [record for record in records if record is not None]
        choice = best_trial(complete)
        if len(complete) < len(records) or choice is None:
            return None
        config = self.jobs[0].config
        tuned = Tuned(
            benchmark=config.benchmark,
            preset=config.preset,
            method=self.method,
            settings=chosen_settings(choice.point),
            trials=tuple(complete),
            protocol={
                "seed": config.seed,
                "chosen_by": "acc, then bwt",
                "data": config.data.model_dump(mode="json"),
                "optim": config.optim.model_dump(mode="json"),
                "model": config.model.model_dump(mode="json"),
                **({"options": dict(self.options)} if self.options else {}),
            },
        )
        if self.open_jobs or not self.path.exists():
            tuned.write(self.path)
        return tuned

    def adopt(self, tuned: Tuned) -> Path:
        """Make the choice the preset's own."""
        self.check_adoptable()
        return adopt(
            tuned.benchmark,
            tuned.preset,
            tuned.method,
            settings=dict(tuned.settings),
            trials=_seen_from_here(self.path),
        )

    def check_adoptable(self) -> None:
        """A preset has the method's usual options; a choice for other options does not apply."""
        config = self.jobs[0].config
        check_adoptable(config.benchmark, config.preset)
        if self.options:
            raise NsclError(
                f"--adopt goes without {_typed(self.options)}: presets have {self.method}'s usual "
                "options; leave out --adopt, the record has the choice"
            )


def _trials(method: str, benchmark: str, settings: Settings, budget: int) -> list[TuningTrial]:
    """The trials, each of which must train differently."""
    config = build_config(benchmark, {**settings, "method": method})
    found = trials_of(method, trials=budget, options=config.options)
    options = settings.get("options") or {}
    if not found and load_method(method).tuning:
        raise NsclError(f"{method} has no strength to tune with {_typed(options)}: leave it out")
    if not found:
        raise NsclError(f"method {method!r} declares no strength: there is nothing to tune")
    fixed = {name: value for name, value in options.items() if name in found[0].point}
    if fixed:
        raise NsclError(f"{_typed(fixed)}: that is what tune varies; leave it out")
    return found


def _typed(options: Settings) -> str:
    return " ".join(f"--method.{name} {value}" for name, value in options.items())


def _record(job: Job, trial: TuningTrial, ending: Ending | None) -> TrialRecord | None:
    result = job.result()
    if result is not None:
        return TrialRecord(
            run=job.name,
            point=trial.point,
            acc=result.acc,
            bwt=result.bwt,
            seconds=result.seconds,
            notes=result.notes,
        )
    if ending is not None and ending.state == "failed" and not job.directory.is_finished:
        # A strength at which training breaks down is a result too.
        return TrialRecord(run=job.name, point=trial.point, error=ending.error)
    return None


def _seen_from_here(path: Path) -> str:
    # The package's file goes to other machines: it must not name a folder of this one.
    full = path.absolute()
    return full.relative_to(Path.cwd()).as_posix() if full.is_relative_to(Path.cwd()) else path.name


def conclude_all(
    tunings: Sequence[Tuning], outcome: PlanOutcome
) -> list[tuple[Tuning, Tuned | None]]:
    """Write what can be written, method by method."""
    endings = {ending.job.name: ending for ending in outcome.endings}
    return [(tuning, tuning.conclude(endings)) for tuning in tunings]


def without_strength(names: Sequence[str]) -> list[str]:
    """Which of several methods have nothing to tune; a single method must have something."""
    return [name for name in names if len(names) > 1 and not load_method(name).tuning]


def tunable_preset(benchmark: str) -> str:
    """The preset that is tuned by default: published presets stay as they are."""
    usual = default_preset(benchmark)
    return usual if usual in ADOPTED else "cpu"
