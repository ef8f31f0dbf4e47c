"""How many features a backbone returns, found without moving its statistics or modes."""

import pytest
import torch
from torch import nn

from nscl.models import ModelError
from nscl.models.networks.tiny_transformer import TinyTransformer
from nscl.models.probe import measured_features

SHAPE = (1, 8, 8)


def test_features_are_counted_and_nothing_else_changes() -> None:
    frozen = nn.BatchNorm1d(64).eval()
    backbone = nn.Sequential(nn.Flatten(), frozen, nn.Dropout(0.5), nn.LazyLinear(5)).train()
    frozen.eval()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    backbone[3](torch.zeros(2, 64))  # a lazy layer draws its weights when it gets its shape
    torch.set_rng_state(before)
    assert measured_features(backbone, SHAPE) == 5
    assert torch.equal(torch.get_rng_state(), before)
    assert frozen.num_batches_tracked == 0
    assert [part.training for part in backbone] == [True, False, True, True]


def test_it_goes_by_the_precision_and_the_kind_of_the_inputs() -> None:
    assert measured_features(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).double(), SHAPE) == 3
    assert measured_features(TinyTransformer(7, 30, width=8, heads=2), (7, 30)) == 8


class Liar(nn.Flatten):
    out_features = 99


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (nn.Conv2d(1, 2, 3), "got [2, 2, 6, 6]: flatten its output"),
        (nn.Sequential(nn.Flatten(), nn.Linear(3, 3)), "cannot take images of shape [2, 1, 8, 8]"),
        (nn.MaxPool2d(2, return_indices=True), "got a tuple: flatten its output"),
        (Liar(), "declares out_features=99 but returns 64 features"),
    ],
)
def test_what_returns_no_features_is_named(backbone: nn.Module, message: str) -> None:
    backbone.train()
    with pytest.raises(ModelError) as caught:
        measured_features(backbone, SHAPE, name="mine")
    assert str(caught.value).startswith("mine ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert backbone.training
