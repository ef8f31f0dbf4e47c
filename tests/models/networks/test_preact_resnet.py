"""The paper's backbone against its published size and a slow re-computation."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nscl.models import ModelError, MultiHead, PreActResNet18
from nscl.models.networks.preact_resnet import PreActBlock


def slow_conv(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Convolution as a matrix product of unfolded patches, in the weight's own order."""
    n, _, h, w = x.shape
    stride = conv.stride[0]
    patches = F.unfold(x, conv.kernel_size, padding=conv.padding, stride=stride)
    rows = conv.weight.flatten(1) @ patches
    return rows.reshape(n, -1, -(-h // stride), -(-w // stride))


def slow_norm(x: Tensor, bn: nn.BatchNorm2d) -> Tensor:
    if bn.training:
        mean = x.mean((0, 2, 3), keepdim=True)
        var = ((x - mean) ** 2).mean((0, 2, 3), keepdim=True)
    else:
        mean, var = bn.running_mean.view(1, -1, 1, 1), bn.running_var.view(1, -1, 1, 1)
    scale, shift = bn.weight.view(1, -1, 1, 1), bn.bias.view(1, -1, 1, 1)
    return (x - mean) / (var + bn.eps).sqrt() * scale + shift


def slow_block(x: Tensor, block: PreActBlock) -> Tensor:
    y = slow_norm(x, block.bn1)
    z = y * (y > 0)
    shortcut = y if block.shortcut is None else slow_conv(z, block.shortcut)
    h = slow_norm(slow_conv(z, block.conv1), block.bn2)
    return slow_conv(h * (h > 0), block.conv2) + shortcut


def slow_network(x: Tensor, net: PreActResNet18) -> Tensor:
    out = slow_conv(x, net.conv)
    for block in net.blocks:
        out = slow_block(out, block)
    out = slow_norm(out, net.bn)
    return (out * (out > 0)).mean((2, 3))


def shaken(module: nn.Module) -> nn.Module:
    """Give norms scales, shifts and statistics that hide no mistake."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.weight, layer.running_var):
                nn.init.uniform_(tensor, 0.5, 2.0)
            for tensor in (layer.bias, layer.running_mean):
                nn.init.uniform_(tensor, -1.0, 1.0)
    return module


def test_the_published_number_of_parameters():
    model = MultiHead(PreActResNet18(3, width=64), [10] * 10)
    assert sum(p.numel() for p in model.parameters()) == 11_218_340
    assert model.features == 512


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("size", [8, 9])
def test_the_network_equals_the_slow_one(training, size):
    torch.manual_seed(0)
    net = shaken(PreActResNet18(2, width=3).double()).train(training)
    x = torch.randn(4, 2, size, size, dtype=torch.float64)
    want = slow_network(x, net)
    torch.testing.assert_close(net(x), want, rtol=1e-10, atol=1e-10)


def test_the_identity_shortcut_is_normalised_but_not_activated():
    """With the last convolution silenced only the shortcut is left, and it must be BN1(x)."""
    torch.manual_seed(0)
    block = shaken(PreActBlock(3, 3).double()).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    out = block(x)
    torch.testing.assert_close(out, slow_norm(x, block.bn1))
    assert (out < 0).any()
    assert not torch.allclose(out, x)


def test_a_shortcut_that_changes_the_shape_is_a_bare_convolution_of_the_activated_input():
    torch.manual_seed(0)
    block = shaken(PreActBlock(3, 6, stride=2).double()).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    want = slow_conv(slow_norm(x, block.bn1).clamp(min=0), block.shortcut)
    torch.testing.assert_close(block(x), want)


def test_layers_are_the_documented_ones():
    net = PreActResNet18(3, width=20)
    convs = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(convs) == 1 + 8 * 2 + 3
    assert len(norms) == 8 * 2 + 1
    assert all(conv.bias is None for conv in convs)
    assert [block.conv1.out_channels for block in net.blocks] == [20, 20, 40, 40, 80, 80, 160, 160]
    assert [block.conv1.stride[0] for block in net.blocks] == [1, 1, 2, 1, 2, 1, 2, 1]
    assert net.out_features == 160


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 20, 28)])
def test_any_image_becomes_one_row_of_features(shape):
    net = PreActResNet18(shape[0], width=4).eval()
    assert net(torch.randn(3, *shape)).shape == (3, 32)


@pytest.mark.parametrize("options", [{"width": 0}, {"width": 2.5}, {"in_channels": -1}])
def test_impossible_sizes_are_refused(options):
    with pytest.raises(ModelError, match="must be an integer of at least 1"):
        PreActResNet18(**options)


def test_a_stem_of_stride_two_quarters_every_map_and_adds_no_weight() -> None:
    torch.manual_seed(0)
    usual, strided = (shaken(PreActResNet18(3, width=4, stem_stride=s)).eval() for s in (1, 2))
    assert usual.state_dict().keys() == strided.state_dict().keys()
    x = torch.randn(2, 3, 16, 16)
    assert strided.conv(x).shape == (2, 4, 8, 8)
    assert torch.allclose(strided(x), slow_network(x, strided), atol=1e-5)
    with pytest.raises(ModelError, match="stem_stride"):
        PreActResNet18(3, width=4, stem_stride=0)
