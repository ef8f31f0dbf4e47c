"""Scenarios of wide layers, for ``parallel_worker.py``."""

from functools import partial
from pathlib import Path
from typing import Any

from nscl.core.distributed.covariance_sums import same_on_all_ranks
from tests.core.distributed import parallel_models as cases
from tests.core.distributed.parallel_proximal import WRAPPERS, Scenario

RANK = 4  # most layers of the reader are wider, on one side or both


def two_tasks(wrapper: str, rank: int, folder: Path) -> Any:
    model = WRAPPERS[wrapper](cases.build(cases.Reader))
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL["penalty"], every=2, rank=RANK)
    return cases.two_tasks(model, memory, optimizer, slice(rank, None, 2))


def parts(rank: int, folder: Path) -> Any:
    model = cases.build(cases.Reader)
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL["penalty"], rank=RANK)
    memory.remember(cases.sentences(0)[rank::2], loss=cases.squares)
    del optimizer
    return memory.state_dict()


def on_one_rank(rank: int, folder: Path) -> Any:
    model = cases.build(cases.Reader)
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL["penalty"], rank=RANK)
    memory.remember(cases.sentences(0) if rank else [], loss=cases.squares)
    del optimizer
    return memory.state_dict()


def inputs_shared_on_some_ranks(rank: int, folder: Path) -> Any:
    return same_on_all_ranks([0, 0, 1, -1] if rank else [0, 1, 1, -1])


SCENARIOS: dict[str, Scenario] = {
    "sketches of parts": parts,
    "inputs shared on some ranks": inputs_shared_on_some_ranks,
    "sketches of one rank": on_one_rank,
    "ddp sketched": partial(two_tasks, "ddp"),
    "fsdp sketched": partial(two_tasks, "fsdp"),
}
