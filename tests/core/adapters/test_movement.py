"""What adapters add to a layer, against the matrices written out."""

import torch
from torch import nn

from nscl.core.adapters.movement import parts_of_adapters, products
from nscl.core.model.inventory import take_inventory
from nscl.core.state import Placed, State


def test_products_of_two_adapters_of_one_convolution() -> None:
    model = nn.ModuleDict(
        {
            "base": nn.Conv2d(3, 4, 2),
            **{f"down{i}": nn.Conv2d(3, 2, 2, bias=False) for i in (1, 2)},
            **{f"up{i}": nn.Conv2d(2, 4, 1, bias=False) for i in (1, 2)},
        }
    ).double()
    found = take_inventory(model)
    placed = {f"down{i}": Placed("base", f"up{i}.weight", float(i), None) for i in (1, 2)}
    state = State(blocks=found.blocks, adapters=placed)
    matrix = products(state, found.parameters)["base"][0]
    x = torch.randn(5, 3, 2, 2, dtype=torch.float64)
    truth = sum(i * model[f"up{i}"](model[f"down{i}"](x)) for i in (1, 2))
    torch.testing.assert_close(x.flatten(1) @ matrix.T, truth.flatten(1))  # type: ignore[union-attr]
    assert parts_of_adapters(state) == {"down1", "down2", "up1", "up2"}
