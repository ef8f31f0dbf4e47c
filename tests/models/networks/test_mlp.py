"""The perceptron against a slow re-computation."""

import torch

from nscl.models.networks.mlp import mlp


def test_mlp_is_linear_and_relu_on_the_flat_image():
    torch.manual_seed(0)
    net = mlp((2, 3, 3), width=5, depth=2).double()
    x = torch.randn(4, 2, 3, 3, dtype=torch.float64)
    rows = x.reshape(4, 18)
    for layer in net.layers:
        rows = (rows @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(net(x), rows)
    assert net.out_features == 5
