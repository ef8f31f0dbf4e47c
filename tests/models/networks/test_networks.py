"""All networks: the same seed gives the same weights and outputs."""

import pytest
import torch
from torch import nn

from nscl.models import MLP, ConvNet, PreActResNet18


@pytest.mark.parametrize(
    "make",
    [lambda: PreActResNet18(1, width=3), lambda: ConvNet(1, width=3), lambda: MLP(64, width=9)],
)
def test_a_seed_decides_everything(make):
    def built(seed: int) -> tuple[nn.Module, torch.Tensor]:
        torch.manual_seed(seed)
        net = make().double()
        x = torch.randn(3, 1, 8, 8, dtype=torch.float64)
        return net, net(x)

    (first, out_1), (again, out_2), (_, out_3) = built(7), built(7), built(8)
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(out_1, out_2)
    assert not torch.equal(out_1, out_3)
