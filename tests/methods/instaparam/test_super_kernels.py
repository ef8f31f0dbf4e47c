"""Super kernels: crops, sums of active branches, sizes, what is refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nscl.errors import UnsupportedError
from nscl.methods.instaparam.controller import Controller
from nscl.methods.instaparam.super_kernels import SuperBlock, SuperConv, SuperNet, super_net_like
from nscl.models.networks.convnet import ConvNet
from nscl.models.networks.mlp import MLP
from nscl.models.networks.preact_resnet import PreActResNet18
from tests.methods.instaparam.slow_instaparam import slow_block, slow_mixture


@pytest.mark.parametrize(("size", "stride"), [(7, 1), (5, 2), (3, 1), (1, 2)])
def test_a_crop_is_the_whole_kernel_with_its_rings_set_to_zero(size: int, stride: int) -> None:
    conv = SuperConv(4, 8, size=7, stride=stride, groups=4).double()
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    whole, ring = torch.zeros_like(conv.weight), (7 - size) // 2
    inside = slice(ring, 7 - ring)
    whole[:, :, inside, inside] = conv.weight[:, :, inside, inside]
    slow = F.conv2d(x, whole, stride=stride, padding=3, groups=4)
    assert torch.allclose(conv(x, size), slow, atol=1e-12)


@pytest.mark.parametrize(("outside", "stride"), [(8, 1), (16, 2)])
def test_a_block_sums_the_active_branches_of_each_sample(outside: int, stride: int) -> None:
    torch.manual_seed(0)
    block = SuperBlock(8, outside, stride=stride, kernels=(7, 5, 3, 1), groups=4).double()
    nn.init.normal_(block.norm2.weight)
    x = torch.randn(6, 8, 6, 6, dtype=torch.float64)
    policy = torch.rand(6, 4) < 0.5
    policy[0], policy[1] = False, True
    found, slow = block(x, policy), slow_block(block, x, policy)
    assert torch.allclose(found, slow, atol=1e-12)
    weights = list(block.parameters())
    direction = torch.randn_like(found)
    for fast, true in zip(
        torch.autograd.grad((found * direction).sum(), weights),
        torch.autograd.grad((slow * direction).sum(), weights),
        strict=True,
    ):
        assert torch.allclose(fast, true, atol=1e-10)


@pytest.mark.parametrize(("outside", "stride"), [(8, 1), (16, 2)])
def test_a_policy_of_floats_mixes_policies(outside: int, stride: int) -> None:
    """So its slope by a branch is what switching that branch changes."""
    torch.manual_seed(0)
    block = SuperBlock(8, outside, stride=stride, kernels=(5, 3, 1), groups=4).double()
    x = torch.randn(5, 8, 6, 6, dtype=torch.float64)
    policy = torch.rand(5, 3) < 0.5
    policy[0], policy[1] = False, True
    assert torch.allclose(block(x, policy.double()), block(x, policy), atol=1e-12)
    weights = policy.double().requires_grad_()
    mixed = torch.cat([slow_mixture(block, x[i, None], weights[i]) for i in range(5)])
    direction = torch.randn_like(mixed)
    (slow,) = torch.autograd.grad((mixed * direction).sum(), weights)
    (fast,) = torch.autograd.grad((block(x, weights) * direction).sum(), weights)
    assert torch.allclose(fast, slow, atol=1e-10)


def test_the_super_network_has_the_size_of_the_one_it_replaces() -> None:
    net = super_net_like(PreActResNet18(3, width=8), kernels=(7, 5, 3, 1), groups=4)
    assert net.choices == (8, 4)
    assert net.out_features == 64
    assert [b.conv1.stride for b in net.blocks] == [1, 1, 2, 1, 2, 1, 2, 1]  # type: ignore[union-attr]
    small_net = super_net_like(ConvNet(1, width=4), kernels=(3, 1), groups=2)
    assert small_net(torch.zeros(2, 1, 8, 8)).shape == (2, 16)
    assert sum(p.numel() for p in Controller(3, (8, 4)).parameters()) == pytest.approx(
        80e3, rel=0.1
    )


@pytest.mark.parametrize(
    ("backbone", "message"),
    [(MLP(64), "--model.name convnet or resnet18"), (ConvNet(1, width=6), "not a multiple of 4")],
)
def test_networks_without_super_kernels_are_refused(backbone: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        super_net_like(backbone, kernels=(7, 5, 3, 1), groups=4)


def test_bf16_and_a_net_without_policy() -> None:
    net = SuperNet(3, [(8, 1), (16, 2)], kernels=(5, 3, 1))
    x, everything = torch.randn(4, 3, 8, 8), torch.ones(4, 2, 3, dtype=torch.bool)
    assert torch.equal(net(x), net(x, everything))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(net(x, torch.rand(4, 2, 3) < 0.5)).all()


def test_the_stem_has_the_stride_of_the_network_it_is_like() -> None:
    for stride in (1, 2):
        net = super_net_like(
            PreActResNet18(3, width=8, stem_stride=stride), kernels=(3, 1), groups=4
        )
        assert net.conv.stride == (stride, stride)
