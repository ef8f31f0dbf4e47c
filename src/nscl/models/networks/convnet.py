"""A plain convolutional network for small images: convolution, BatchNorm, ReLU, halve, repeat."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from nscl.models.errors import ModelError
from nscl.models.networks.shapes import check_shape, check_size


class ConvNet(nn.Module):
    """Images ``[N, in_channels, H, W]`` to features ``[N, width * 2 ** (depth - 1)]``.

    Each of ``depth`` stages is conv 3x3 (no bias), BatchNorm, ReLU; channels double and the image
    halves from one stage to the next; the last map is averaged. Sides must be at least
    ``2 ** (depth - 1)``: 4 by default.
    """

    def __init__(self, in_channels: int = 3, *, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        check_size("in_channels", in_channels)
        check_size("width", width)
        check_size("depth", depth)
        channels = [in_channels, *(width << stage for stage in range(depth))]
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=3, padding=1, bias=False)
            for before, after in pairwise(channels)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for after in channels[1:])
        self.out_features = channels[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Map images to features."""
        for stage, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.max_pool2d(x, 2) if stage else x
            x = F.relu(norm(conv(x)))
        return F.adaptive_avg_pool2d(x, 1).flatten(1)


def convnet(image_shape: Sequence[int], *, width: int = 32, depth: int = 3) -> ConvNet:
    """Build the network for images of ``image_shape`` (channels, height, width)."""
    channels, *sides = check_shape(image_shape)
    check_size("depth", depth)
    least = 2 ** (depth - 1)
    if min(sides) < least:
        raise ModelError(
            f"convnet with depth {depth} needs sides of at least {least}, "
            f"the images have {sides[0]} x {sides[1]}: lower the depth"
        )
    return ConvNet(channels, width=width, depth=depth)
