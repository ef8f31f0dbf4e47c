"""Super kernels: blocks whose branches are centred crops of one large kernel.

Every convolution keeps one large parameter; branch ``i`` of a block uses its centred crop of size
``kernels[i]``. A policy, one bool per sample, block and branch, says which branches are summed. A
branch runs on its own samples only; GroupNorm treats samples one by one, so that changes nothing. A
policy of floats 0 and 1 means the same, but runs all branches and is differentiable. See
docs/methods.md, "InstAParam".
"""

from collections.abc import Sequence
from itertools import pairwise
from math import lcm

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nscl.errors import UnsupportedError
from nscl.models.networks.convnet import ConvNet
from nscl.models.networks.preact_resnet import BLOCKS_PER_STAGE, STRIDES, PreActResNet18

NORM_GROUPS = 2
BlockShapes = list[tuple[int, int]]  # channels and stride of each block


class SuperConv(nn.Module):
    """A convolution without bias that can use any centred crop of its kernel."""

    def __init__(self, inside: int, outside: int, *, size: int, stride: int, groups: int) -> None:
        super().__init__()
        conv = nn.Conv2d(inside, outside, size, bias=False, groups=groups)
        self.weight = conv.weight
        self.stride, self.groups = stride, groups

    def forward(self, x: Tensor, size: int) -> Tensor:
        """Convolve with the centred ``size × size`` crop; only the stride makes the map smaller."""
        ring = (self.weight.shape[-1] - size) // 2
        crop = self.weight[:, :, ring : ring + size, ring : ring + size]
        return F.conv2d(x, crop, stride=self.stride, padding=size // 2, groups=self.groups)


class SuperBlock(nn.Module):
    """The sum of the active branches: conv, norm, ReLU, conv, norm, plus shortcut, ReLU.

    Branches share both norms and the shortcut. A sample without an active branch passes unchanged,
    or through the 3 × 3 branch where the block changes the shape.
    """

    def __init__(
        self, inside: int, outside: int, *, stride: int, kernels: Sequence[int], groups: int
    ) -> None:
        super().__init__()
        self.kernels, size = tuple(kernels), max(kernels)
        self.conv1 = SuperConv(inside, outside, size=size, stride=stride, groups=groups)
        self.norm1 = nn.GroupNorm(NORM_GROUPS, outside)
        self.conv2 = SuperConv(outside, outside, size=size, stride=1, groups=groups)
        self.norm2 = nn.GroupNorm(NORM_GROUPS, outside)
        self.shortcut: nn.Sequential | None = None
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride=stride, bias=False),
                nn.GroupNorm(NORM_GROUPS, outside),
            )
        self.default = self.kernels.index(3) if 3 in self.kernels else len(self.kernels) // 2

    def forward(self, x: Tensor, policy: Tensor) -> Tensor:
        """Map ``[N, in, H, W]`` by a policy ``[N, branches]``."""
        if policy.is_floating_point():
            return self._weighted(x, policy)
        idle = ~policy.any(1)
        if self.shortcut is None:
            short, out = x, x * idle.to(x.dtype)[:, None, None, None]
        else:
            short = self.shortcut(x)
            out = torch.zeros_like(short)
            policy = policy.clone()
            policy[:, self.default] |= idle
        branches, rows = policy.T.nonzero(as_tuple=True)
        if not len(rows):
            return out
        # All samples of all branches side by side: what branches share is computed in one go.
        sizes = torch.bincount(branches, minlength=len(self.kernels)).tolist()
        inner = F.relu(self.norm1(self._crops(self.conv1, x.index_select(0, rows), sizes)))
        outer = self.norm2(self._crops(self.conv2, inner, sizes)) + short.index_select(0, rows)
        return out.index_add(0, rows, F.relu(outer).to(out.dtype))

    def _weighted(self, x: Tensor, policy: Tensor) -> Tensor:
        """All branches on all samples, each times its weight, linear in the weight of each.

        So the slope by a weight is what switching that branch changes, the inactive ones' too.
        """
        short = x if self.shortcut is None else self.shortcut(x)
        branches = [self._branch(x, short, size) for size in self.kernels]
        unchanged = x if self.shortcut is None else branches[self.default]
        idle = (1 - policy).prod(1)
        total = idle[:, None, None, None] * unchanged
        for weight, branch in zip(policy.unbind(1), branches, strict=True):
            total = total + weight[:, None, None, None] * branch
        return total

    def _branch(self, x: Tensor, short: Tensor, size: int) -> Tensor:
        inner = F.relu(self.norm1(self.conv1(x, size)))
        return F.relu(self.norm2(self.conv2(inner, size)) + short)

    def _crops(self, conv: "SuperConv", x: Tensor, sizes: Sequence[int]) -> Tensor:
        """Convolve each branch's samples with its crop."""
        parts = zip(x.split(list(sizes)), self.kernels, strict=True)
        return torch.cat([conv(part, size) for part, size in parts if len(part)])


class SuperNet(nn.Module):
    """Stem and super-kernel blocks: images ``[N, C, H, W]`` to features, by a policy.

    >>> net = SuperNet(3, [(8, 1), (16, 2)], kernels=(5, 3, 1))
    >>> net(torch.zeros(2, 3, 8, 8), torch.ones(2, 2, 3, dtype=torch.bool)).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        in_channels: int,
        layout: BlockShapes,
        *,
        kernels: Sequence[int],
        groups: int = 4,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        channels = [layout[0][0], *(width for width, _ in layout)]
        _check(channels, groups)
        self.out_features = channels[-1]
        self.conv = nn.Conv2d(
            in_channels, channels[0], 3, stride=stem_stride, padding=1, bias=False
        )
        self.norm = nn.GroupNorm(NORM_GROUPS, channels[0])
        self.blocks = nn.ModuleList(
            SuperBlock(inside, outside, stride=stride, kernels=kernels, groups=groups)
            for (inside, outside), (_, stride) in zip(pairwise(channels), layout, strict=True)
        )
        self.choices = (len(layout), len(kernels))

    def forward(self, x: Tensor, policy: Tensor | None = None) -> Tensor:
        """Map images by a policy ``[N, blocks, branches]``; without one all branches are active."""
        if policy is None:
            policy = torch.ones(len(x), *self.choices, dtype=torch.bool, device=x.device)
        x = F.relu(self.norm(self.conv(x)))
        for number, block in enumerate(self.blocks):
            x = block(x, policy[:, number])
        return F.adaptive_avg_pool2d(x, 1).flatten(1)


def super_net_like(backbone: nn.Module, *, kernels: Sequence[int], groups: int) -> SuperNet:
    """The super-kernel network with the stages, widths and features of a known backbone."""
    in_channels, layout = _layout(backbone)
    stride = backbone.conv.stride[0] if isinstance(backbone, PreActResNet18) else 1
    return SuperNet(in_channels, layout, kernels=kernels, groups=groups, stem_stride=stride)


def _layout(backbone: nn.Module) -> tuple[int, BlockShapes]:
    if isinstance(backbone, PreActResNet18):
        width, blocks = backbone.conv.out_channels, range(BLOCKS_PER_STAGE)
        layout = [(width << s, 1 if b else STRIDES[s]) for s in range(len(STRIDES)) for b in blocks]
        return backbone.conv.in_channels, layout
    if isinstance(backbone, ConvNet):
        convs = [conv for conv in backbone.convs if isinstance(conv, nn.Conv2d)]
        layout = [(conv.out_channels, 2 if stage else 1) for stage, conv in enumerate(convs)]
        return convs[0].in_channels, layout
    raise UnsupportedError(
        f"instaparam has no super kernels for a {type(backbone).__name__}: it replaces the "
        "convolutions of a known network; choose --model.name convnet or resnet18"
    )


def _check(channels: Sequence[int], groups: int) -> None:
    unit = lcm(groups, NORM_GROUPS)
    wrong = [width for width in channels if width % unit]
    if wrong:
        raise UnsupportedError(
            f"instaparam divides channels into {groups} groups and norms into {NORM_GROUPS}: "
            f"{wrong[0]} is not a multiple of {unit}; choose another --model.width or "
            "--method.groups"
        )
