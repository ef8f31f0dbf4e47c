"""Pre-activation ResNet-18 with the small-image stem, as the Adam-NSCL experiments use it.

Three details differ from other ResNets of that name: the identity shortcut starts after the first
BatchNorm of a block and before its ReLU; a shortcut that changes the shape is a 1x1 convolution of
the activated input, without BatchNorm; no convolution has a bias. Layers keep PyTorch's default
initialisation. (Read off the model file of the authors' published code; He et al. 2016 is where
pre-activation comes from.)
"""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from nscl.models.networks.shapes import check_shape, check_size

BLOCKS_PER_STAGE = 2
STRIDES = (1, 2, 2, 2)


def _conv3x3(in_channels: int, out_channels: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)


class PreActBlock(nn.Module):
    """Two 3x3 convolutions, each after its BatchNorm and ReLU, around one shortcut."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = _conv3x3(in_channels, out_channels, stride=stride)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.conv2 = _conv3x3(out_channels, out_channels)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(
                in_channels, out_channels, kernel_size=1, stride=stride, bias=False
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, in, H, W]`` to ``[N, out, H / stride, W / stride]``."""
        normalised: Tensor = self.bn1(x)
        activated = F.relu(normalised)
        shortcut = normalised if self.shortcut is None else self.shortcut(activated)
        out: Tensor = self.conv2(F.relu(self.bn2(self.conv1(activated))))
        return out + shortcut


class PreActResNet18(nn.Module):
    """Images ``[N, in_channels, H, W]`` to features ``[N, 8 * width]``.

    ``width=64`` is the paper's network; ``width=16`` with ``stem_stride=2``, which makes every
    feature map a quarter, is that of preset cpu.
    """

    def __init__(self, in_channels: int = 3, *, width: int = 64, stem_stride: int = 1) -> None:
        super().__init__()
        check_size("in_channels", in_channels)
        check_size("width", width)
        check_size("stem_stride", stem_stride)
        self.out_features = 8 * width
        self.conv = _conv3x3(in_channels, width, stride=stem_stride)
        self.blocks = nn.Sequential(*_blocks(width))
        self.bn = nn.BatchNorm2d(self.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to features."""
        out = F.relu(self.bn(self.blocks(self.conv(x))))
        return F.adaptive_avg_pool2d(out, 1).flatten(1)


def _blocks(width: int) -> Iterator[PreActBlock]:
    channels = width
    for stage, stride in enumerate(STRIDES):
        for block in range(BLOCKS_PER_STAGE):
            yield PreActBlock(channels, width << stage, stride=stride if block == 0 else 1)
            channels = width << stage


def preact_resnet18(
    image_shape: Sequence[int], *, width: int = 64, stem_stride: int = 1
) -> PreActResNet18:
    """Build the network for images of ``image_shape`` (channels, height, width), of any size."""
    channels, _, _ = check_shape(image_shape)
    return PreActResNet18(channels, width=width, stem_stride=stem_stride)
