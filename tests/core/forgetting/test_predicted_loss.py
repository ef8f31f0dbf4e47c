"""``total.loss`` beside the measured rise of the old loss where several layers have moved."""

import itertools

import pytest
import torch
from torch import nn

import nscl


@pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")
def test_the_sum_over_layers_leaves_out_what_they_do_together() -> None:
    """Cross terms change sign with one of the movements: the mean over signs has none."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).double()
    x = torch.randn(20_000, 4).double()
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.remember([x], likelihood="gaussian")
    before, start = model(x).detach(), {k: v.clone() for k, v in model.state_dict().items()}
    directions = [torch.randn_like(layer.weight) for layer in model]
    predicted, measured = [], []
    for signs in itertools.product((1, -1), repeat=2):
        model.load_state_dict(start)
        with torch.no_grad():
            for layer, direction, sign in zip(model, directions, signs, strict=True):
                layer.weight += sign * 1e-3 * direction
        predicted.append(memory.forgetting().total.loss)
        measured.append(0.5 * float((model(x).detach() - before).square().sum(1).mean()))
    assert predicted == pytest.approx([predicted[0]] * 4, rel=1e-6)
    assert predicted[0] == pytest.approx(sum(measured) / 4, rel=0.05)
    assert max(measured) > 1.5 * min(measured)  # what the sum leaves out is not small
