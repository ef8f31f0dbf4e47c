"""The convolutional network: shapes, a slow re-computation, images that are too small."""

import pytest
import torch
from torch.nn import functional as F

from nscl.models import ConvNet, ModelError
from nscl.models.networks.convnet import convnet


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
