"""Random numbers follow from the seed and the place, and from nothing before."""

import random

import numpy as np
import torch

from nscl.training.process.seeding import derive, generator, seed_all


def test_a_seed_belongs_to_one_place() -> None:
    places = [("epoch", 0, 1), ("epoch", 1, 0), ("epoch", 0, 11), ("start", 0)]
    seeds = {derive(seed, *place) for seed in (0, 1) for place in places}
    assert len(seeds) == 8
    # A run repeats its numbers in every version: this value must stay.
    assert derive(0, "epoch", 0, 1) == 55826969949384579


def test_every_global_generator_is_seeded() -> None:
    draws = []
    for _ in range(2):
        seed_all(3, "here")
        draws.append((random.random(), float(torch.rand(())), float(np.random.rand())))  # noqa: NPY002
    assert draws[0] == draws[1]
    seed_all(3, "there")
    elsewhere = (random.random(), float(torch.rand(())), float(np.random.rand()))  # noqa: NPY002
    assert all(a != b for a, b in zip(draws[0], elsewhere, strict=True))


def test_a_generator_leaves_the_global_ones_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    own = torch.rand(3, generator=generator(0, "batches"))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(own, torch.rand(3, generator=generator(0, "batches")))
