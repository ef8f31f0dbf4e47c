"""The small backbones: shapes, a slow re-computation, repeatability."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nscl.models import MLP, ConvNet, ModelError, PreActResNet18
from nscl.models.convnet import convnet
from nscl.models.mlp import mlp


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("sides", [(8, 8), (28, 28), (32, 32), (4, 9)])
def test_convnet_takes_small_images_of_any_channels(channels, sides):
    net = convnet((channels, *sides), width=4)
    assert net(torch.randn(2, channels, *sides)).shape == (2, net.out_features) == (2, 16)


def test_convnet_is_conv_norm_relu_and_halving():
    torch.manual_seed(0)
    net = ConvNet(2, width=3, depth=2).double().train()
    x = torch.randn(3, 2, 7, 6, dtype=torch.float64)
    first = F.relu(F.batch_norm(F.conv2d(x, net.convs[0].weight, padding=1), None, None,
                                training=True))  # fmt: skip
    halved = torch.stack(
        [
            first[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].amax((2, 3))
            for i in range(3)
            for j in range(3)
        ],
        dim=-1,
    ).view(3, 3, 3, 3)
    second = F.relu(F.batch_norm(F.conv2d(halved, net.convs[1].weight, padding=1), None, None,
                                 training=True))  # fmt: skip
    torch.testing.assert_close(net(x), second.mean((2, 3)))
    assert all(conv.bias is None for conv in net.convs)


def test_convnet_says_when_images_are_too_small():
    with pytest.raises(
        ModelError, match="depth 3 needs sides of at least 4, the images have 3 x 8"
    ):
        convnet((1, 3, 8))
    assert convnet((1, 1, 1), depth=1).eval()(torch.zeros(2, 1, 1, 1)).shape == (2, 32)


def test_mlp_is_linear_and_relu_on_the_flat_image():
    torch.manual_seed(0)
    net = mlp((2, 3, 3), width=5, depth=2).double()
    x = torch.randn(4, 2, 3, 3, dtype=torch.float64)
    rows = x.reshape(4, 18)
    for layer in net.layers:
        rows = (rows @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(net(x), rows)
    assert net.out_features == 5


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


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 0), (1, 8, 8.0), (1, 8, 8, 8)])
def test_impossible_shapes_are_refused(shape):
    for make in (convnet, mlp):
        with pytest.raises(ModelError, match="image_shape"):
            make(shape)


@pytest.mark.parametrize("options", [{"width": 0}, {"depth": 0}, {"width": True}])
def test_impossible_options_are_refused(options):
    for make in (convnet, mlp):
        with pytest.raises(ModelError, match="must be a whole number from 1 on"):
            make((1, 8, 8), **options)
