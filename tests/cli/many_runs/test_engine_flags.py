"""Flags of an engine: which one is opened, and what is refused."""

import pytest

from nscl.cli.many_runs.engine_flags import HERE, EngineFlags
from nscl.engines.workers.local import Local
from nscl.errors import NsclError


def test_without_flags_one_run_at_a_time_goes_on_here() -> None:
    engine = HERE.open()
    assert isinstance(engine, Local)
    assert (engine.slots, HERE.side_by_side, HERE.is_local) == (1, 1, True)


def test_jobs_share_the_cores_of_this_machine_but_not_of_a_cluster() -> None:
    assert EngineFlags(jobs=3).open().slots == 3
    assert EngineFlags(jobs=3).side_by_side == 3
    assert EngineFlags(jobs=3, engine="ray").side_by_side is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (EngineFlags(jobs=0), "--jobs 0: at least one run"),
        (EngineFlags(jobs=-1, engine="ray"), "--jobs -1: at least one run"),
        (EngineFlags(address="ray://head:10001"), "add --engine ray"),
    ],
)
def test_what_cannot_be_opened_is_refused(flags: EngineFlags, message: str) -> None:
    with pytest.raises(NsclError, match=message):
        flags.open()
