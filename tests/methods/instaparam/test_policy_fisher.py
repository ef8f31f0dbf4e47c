"""Fisher information under a controller's decisions, against a loop over images."""

from pathlib import Path

import pytest
import torch

from nscl.methods.base import Phase
from nscl.methods.regularization.importance_pass import PassOptions, pass_batches
from nscl.methods.regularization.penalty import shared_parameters
from tests.methods.instaparam.slow_instaparam import (
    exact,
    slow_fisher,
)
from tests.methods.setups import train

EWC = 5.0


@pytest.mark.parametrize("scenario", ["task", "domain"])
def test_fisher_information_is_a_loop_over_images(scenario: str, tmp_path: Path) -> None:
    setup, method = exact(tmp_path, ewc=EWC, scenario=scenario)
    train(setup, 0, Phase(), steps=2)
    method.end_task(0)
    plain = PassOptions(samples=None, stats_augment=False)
    split = setup.stream[0].train
    batches = list(pass_batches(method.lab, split, 0, plain, unit="batch_scaled"))
    assert len(batches) > 1
    found = method.penalty.importance
    slow = slow_fisher(method, batches, 0, list(found))
    assert set(found) == set(shared_parameters(method.lab))
    for name, fisher in found.items():
        assert torch.allclose(fisher, slow[name], rtol=1e-8, atol=1e-14), name
        assert torch.equal(method.penalty.centre[name], method.model.get_parameter(name)), name
