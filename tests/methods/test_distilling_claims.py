"""What distillation and side classifiers are for: less forgetting than fine-tuning."""

from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from PIL import Image

from nscl.training.config.build import build_config
from nscl.training.experiment import run
from tests.quick_runs import QuickRuns
from tests.runs import SMALL

METHODS = ("lwf", "muc-mas", "gd-wild")
SEEDS = (1, pytest.param(3, marks=pytest.mark.slow))


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("method", METHODS)
def test_it_forgets_less_than_half_of_what_fine_tuning_does(
    method: str, seeds: int, quick_runs: QuickRuns
) -> None:
    plain = mean(quick_runs("finetune", seed).bwt for seed in range(seeds))
    assert mean(quick_runs(method, seed).bwt for seed in range(seeds)) > plain / 2


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for part, count in (("train", 6), ("test", 3)):
        for label in "abcd":
            (folder / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / label / f"{number}.png")
    return folder


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_it_works_with_pictures_of_ones_own(
    method: str, in_memory: bool, pictures: Path, tmp_path: Path
) -> None:
    pool = {} if method == "lwf" else {"pool": "procedural", "pool_size": 20}
    given = {
        **SMALL,
        "method": method,
        "out": tmp_path,
        "options": pool,
        "data": {"tasks": 2, "size": 8, "max_bytes": None if in_memory else 1},
        "optim": {"epochs": 1, "batch_size": 8},
        "model": {"name": "mlp", "width": 8},
    }
    result = run(build_config(f"folder:{pictures}", given))
    assert result.accuracy.tasks == 2
