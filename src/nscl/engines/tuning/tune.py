"""Tuning from the trials to the record, for one method or several in one queue.

A tuning asks its search which trials come next, reads what finished runs have reached, and asks
again. It has no other state: what is on record, or finished in the folder of runs, is not repeated.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nscl.engines.job import Ending, Job
from nscl.engines.tuning.search import Point, Score, Search, choose, to_repeat
from nscl.engines.tuning.trials import (
    SEEDS,
    TRIALS,
    axes_of,
    chosen_settings,
    job_of,
    tuning_settings,
    typed,
)
from nscl.engines.tuning.tuned_file import (
    TrialRecord,
    Tuned,
    TuningFileError,
    known_trials,
    tuned_path,
)
from nscl.errors import NsclError
from nscl.methods.registry import load_method
from nscl.results.writing import refuse_dangling_link
from nscl.training.config.build import build_config
from nscl.training.config.layers import Settings, merge
from nscl.training.config.presets import default_preset
from nscl.training.config.schema import ConfigError, RunConfig
from nscl.training.config.tuned_values import ADOPTED, adopt, check_adoptable

Trial = tuple[Point, int]  # values and seed
CHOSEN_BY = "mean acc of both seeds on held-out training data; within 1.5 points the better bwt"


@dataclass
class Tuning:
    """The trials of one method: which are known, and which come next."""

    method: str
    benchmark: str
    search: Search
    settings: Settings
    path: Path
    side_by_side: int | None = 1
    known: dict[Trial, TrialRecord] = field(default_factory=dict)
    on_record: int = 0  # trials that the file has

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
        axes = axes_of(method, benchmark, settings, trials=trials)
        full = tuning_settings(benchmark, settings)

        def is_valid(point: Point) -> bool:
            values = chosen_settings(dict(zip((axis.name for axis in axes), point, strict=True)))
            try:
                build_config(benchmark, merge({**full, "method": method}, values))
            except ConfigError:
                return False
            return True

        search = Search(tuple(axes), trials, is_valid)
        preset = build_config(benchmark, {**full, "method": method}).preset
        path = tuned_path(root, benchmark=benchmark, preset=preset, method=method)
        made = cls(method, benchmark, search, full, path, side_by_side)
        made._take_record(force=force)
        return made

    @property
    def config(self) -> RunConfig:
        """The settings that all trials begin from."""
        return build_config(self.benchmark, {**self.settings, "method": self.method})

    def next_jobs(self) -> list[Job]:
        """Runs that are needed next and can go side by side; none when the choice can be made."""
        while wanted := self._wanted():
            jobs = {trial: self._job(trial) for trial in wanted}
            finished = {t: record for t, job in jobs.items() if (record := _finished(job, t, self))}
            self.known |= finished
            if len(finished) < len(wanted):
                return [job for trial, job in jobs.items() if trial not in finished]
        return []

    def take_failures(self, endings: Iterable[Ending]) -> None:
        """A setting at which training breaks down is a result too."""
        failed = {e.job.name: e for e in endings if e.state == "failed"}
        for trial in self._wanted():
            job = self._job(trial)
            if job.name in failed and not job.directory.is_finished:
                error = failed[job.name].error
                self.known[trial] = self._record(trial, job, error=error)

    def conclude(self) -> Tuned | None:
        """Write the record with the choice; None while trials are missing, or if all failed."""
        if self.next_jobs():
            return None
        scores = defaultdict(list)
        for (point, _), record in self.known.items():
            scores[point].append(_score(record))
        best = choose(scores)
        if best is None:
            return None
        tuned = Tuned(
            benchmark=self.benchmark,
            preset=self.config.preset,
            method=self.method,
            settings=chosen_settings(self.values(best)),
            trials=tuple(self.known.values()),
            protocol=self._protocol(),
        )
        if len(self.known) > self.on_record:
            tuned.write(self.path)
        return tuned

    def values(self, point: Point) -> dict[str, float]:
        """The values of a point by the names of its axes."""
        return dict(zip((axis.name for axis in self.search.axes), point, strict=True))

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
        check_adoptable(self.benchmark, self.config.preset)
        if options := self.settings.get("options"):
            raise NsclError(
                f"--adopt goes without {typed(options)}: presets have {self.method}'s usual "
                "options; leave out --adopt, the record has the choice"
            )

    def _wanted(self) -> list[Trial]:
        """Trials that are not known: of the search, then of the second seed."""
        first, second = SEEDS
        scores = {p: _score(r) for (p, seed), r in self.known.items() if seed == first}
        if points := self.search.next_points(scores):
            return [(point, first) for point in points]
        repeated = [(point, second) for point in to_repeat(scores)]
        return [trial for trial in repeated if trial not in self.known]

    def _job(self, trial: Trial) -> Job:
        point, seed = trial
        return job_of(
            self.method,
            self.benchmark,
            self.values(point),
            self.settings,
            seed=seed,
            side_by_side=self.side_by_side,
        )

    def _record(self, trial: Trial, job: Job, **figures: Any) -> TrialRecord:
        point, seed = trial
        return TrialRecord(run=job.name, point=self.values(point), seed=seed, **figures)

    def _take_record(self, *, force: bool) -> None:
        names = [axis.name for axis in self.search.axes]
        there = known_trials(self.path, names, force=force)
        for record in there:
            trial = (tuple(record.point[name] for name in names), record.seed)
            self.known[trial] = record
        self._check_record(there)
        self.on_record = len(there)

    def _check_record(self, there: Sequence[TrialRecord]) -> None:
        """Runs on record must be those of these settings."""
        if any(self._job(trial).name != record.run for trial, record in self.known.items()):
            raise TuningFileError(
                f"{self.path} records trials of another protocol or grid: "
                "add --force to replace it, or choose another folder with --out"
            )

    def _protocol(self) -> dict[str, Any]:
        config, options = self.config, self.settings.get("options")
        return {
            "seeds": list(SEEDS),
            "trials": self.search.budget,
            "chosen_by": CHOSEN_BY,
            "data": config.data.model_dump(mode="json"),
            "optim": config.optim.model_dump(mode="json"),
            "model": config.model.model_dump(mode="json"),
            **({"options": dict(options)} if options else {}),
        }


def _finished(job: Job, trial: Trial, tuning: Tuning) -> TrialRecord | None:
    result = job.result()
    if result is None:
        return None
    figures = {"acc": result.acc, "bwt": result.bwt, "seconds": result.seconds}
    return tuning._record(trial, job, **figures, notes=result.notes)


def _score(record: TrialRecord) -> Score:
    if record.acc is None or record.bwt is None:
        return Score()
    return Score(record.acc, record.bwt)


def _seen_from_here(path: Path) -> str:
    # The package's file goes to other machines: it must not name a folder of this one.
    full = path.absolute()
    return full.relative_to(Path.cwd()).as_posix() if full.is_relative_to(Path.cwd()) else path.name


def without_trials(names: Sequence[str]) -> list[str]:
    """Which of several methods have nothing to tune; a single method must have something."""
    kinds = {name: load_method(name) for name in names if len(names) > 1}
    return [name for name, kind in kinds.items() if not kind.tuning and not kind.tunes_rate]


def tunable_preset(benchmark: str) -> str:
    """The preset that is tuned by default: published presets stay as they are."""
    usual = default_preset(benchmark)
    return usual if usual in ADOPTED else "cpu"
