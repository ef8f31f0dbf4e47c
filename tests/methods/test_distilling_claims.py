"""What distillation and side classifiers are for: less forgetting than fine-tuning."""

from statistics import mean

import pytest

from tests.quick_runs import QuickRuns

METHODS = ("lwf", "muc-mas", "gd-wild")
SEEDS = (1, pytest.param(3, marks=pytest.mark.slow))


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("method", METHODS)
def test_it_forgets_less_than_half_of_what_fine_tuning_does(
    method: str, seeds: int, quick_runs: QuickRuns
) -> None:
    plain = mean(quick_runs("finetune", seed).bwt for seed in range(seeds))
    assert mean(quick_runs(method, seed).bwt for seed in range(seeds)) > plain / 2
