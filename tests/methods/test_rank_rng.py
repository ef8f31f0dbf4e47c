"""Draws of several processes against those of one."""

import pytest
import torch
from torch import Tensor

from nscl.methods import rank_rng
from nscl.methods.rank_rng import drawn_rows, uniform_like


def in_ranks(rank: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a group in which every process has equally many rows."""
    monkeypatch.setattr(rank_rng, "rank_and_world", lambda: (rank, ranks))
    monkeypatch.setattr(rank_rng, "sum_over_ranks", lambda count: ranks * count)


def put_together(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts, 1).flatten(0, 1)


def test_rows_drawn_together_are_those_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    alone = drawn_rows(100, 6)
    parts = []
    for rank in range(2):
        in_ranks(rank, 2, monkeypatch)
        torch.manual_seed(0)
        parts.append(drawn_rows(100, 3))
    assert torch.equal(put_together(parts), alone)


def test_numbers_drawn_together_are_those_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    alone = uniform_like(torch.zeros(6, 2))
    parts = []
    for rank in range(3):
        in_ranks(rank, 3, monkeypatch)
        torch.manual_seed(0)
        parts.append(uniform_like(torch.zeros(2, 2)))
    assert torch.equal(put_together(parts), alone)
