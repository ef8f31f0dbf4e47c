"""A network per task: nothing is forgotten; every task starts from the same weights."""

from pathlib import Path

import pytest

import nscl
from nscl.training.config.schema import ConfigError
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.runs import small


def test_independent_networks_forget_nothing(tmp_path: Path) -> None:
    result = nscl.run(small("independent", tmp_path))
    rows = result.accuracy.rows
    assert all(rows[-1][task] == rows[task][task] for task in range(result.accuracy.tasks))
    assert result.bwt == 0


@pytest.mark.parametrize("method", ["independent", "joint"])
def test_statistics_of_random_weights_are_not_held(method: str, tmp_path: Path) -> None:
    """Each task starts anew, so those of the first belong to none of the others."""
    given = {"model": {"name": "convnet"}, "bn_stats": "frozen"}
    with pytest.raises(ConfigError, match=f"frozen does not go with '{method}'.*per_task"):
        Setup.build(small(method, tmp_path, **given), Ranks())
    Setup.build(small("finetune", tmp_path, **given), Ranks()).close()
