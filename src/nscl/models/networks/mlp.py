"""A multilayer perceptron on flattened images, without normalisation layers."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from nscl.models.networks.shapes import check_shape, check_size


class MLP(nn.Module):
    """Images of any shape with ``in_features`` values to features ``[N, width]``.

    ``depth`` linear layers with bias, each followed by ReLU.
    """

    def __init__(self, in_features: int, *, width: int = 256, depth: int = 2) -> None:
        super().__init__()
        check_size("in_features", in_features)
        check_size("width", width)
        check_size("depth", depth)
        sizes = [in_features, *[width] * depth]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(sizes))
        self.out_features = width

    def forward(self, x: Tensor) -> Tensor:
        """Map images to features."""
        x = x.flatten(1)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


def mlp(image_shape: Sequence[int], *, width: int = 256, depth: int = 2) -> MLP:
    """Build the network for images of ``image_shape`` (channels, height, width)."""
    return MLP(math.prod(check_shape(image_shape)), width=width, depth=depth)
