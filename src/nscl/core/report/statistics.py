"""How far the running statistics of normalisation layers have moved, and when that is too far."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nscl.core.report.names import listed

# σ: beyond this, frozen statistics had the better mean over old and new by 1.8 points and more
# (docs/results.md, "Running statistics").
LARGE_SHIFT = 0.5


@dataclass(frozen=True)
class Shift:
    """How far a normalisation layer's running statistics have moved, in remembered deviations."""

    name: str
    shift: float


def describe_shifts(statistics: Sequence[Shift]) -> list[str]:
    """A line for each of the three that moved most."""
    moved = sorted((s for s in statistics if s.shift > 0), key=lambda s: -s.shift)
    return [f"statistics of {s.name} moved by {s.shift:.3g} σ" for s in moved[:3]]


def describe_large_shifts(statistics: Sequence[Shift]) -> Iterator[str]:
    """What shifts beyond ``LARGE_SHIFT`` mean, and the way out; nothing where there are none.

    >>> next(describe_large_shifts([Shift("bn", 4.4), Shift("fine", 0.2)]))[:59]
    'running statistics of bn moved by 4.4 σ since the last reme'
    """
    large = sorted((s for s in statistics if s.shift > LARGE_SHIFT), key=lambda s: -s.shift)
    if large:
        more = f" (more than {LARGE_SHIFT:g} σ in {len(large)} of {len(statistics)} norm layers)"
        yield (
            f"running statistics of {large[0].name} moved by {large[0].shift:.3g} σ since the last "
            f"remember{more if len(large) > 1 else ''}: old outputs move with them, even where "
            "weights are held; statistics='freeze' holds them too"
        )


def describe_untracked(names: Sequence[str]) -> Iterator[str]:
    """What it means that these layers keep no statistics which could be held.

    >>> next(describe_untracked(["bn"]))[:36]
    'bn always normalises with the batch '
    """
    if names:
        yield (
            f"{listed(names)} always normalises with the batch (track_running_stats=False): "
            "nothing holds what old inputs give there; track statistics, or say "
            "statistics='update' to train without this warning"
        )


def remark_on_shifts(shifts: Iterable[float | None]) -> tuple[str, ...]:
    """A remark on the tasks of a run that moved running statistics too far, from their shifts.

    >>> remark_on_shifts([None, 0.2, 4.4])[0][:62]
    'running statistics moved by more than 0.5 σ in 1 of 3 tasks (3'
    """
    found = list(shifts)
    far = [str(i + 1) for i, shift in enumerate(found) if shift is not None and shift > LARGE_SHIFT]
    if not far:
        return ()
    return (
        f"running statistics moved by more than {LARGE_SHIFT:g} σ in {len(far)} of {len(found)} "
        f"tasks ({', '.join(far)}), and old outputs with them: try --bn-stats frozen",
    )
