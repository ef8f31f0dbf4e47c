"""Pictures resized on their way into a network: small ones in memory, large ones in a batch."""

from torch import Tensor, nn
from torch.nn import functional as F


class Resized(nn.Module):
    """A backbone behind a bilinear resize to ``size`` × ``size``, antialiased when it shrinks.

    >>> Resized(nn.Flatten(), 8)(torch.zeros(2, 3, 4, 4)).shape
    torch.Size([2, 192])
    """

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        self.network, self.size = network, size

    def forward(self, images: Tensor) -> Tensor:
        """Map images of any size to what the network returns."""
        shrinks = self.size < min(images.shape[-2:])
        larger = F.interpolate(
            images, size=(self.size, self.size), mode="bilinear", antialias=shrinks
        )
        features: Tensor = self.network(larger)
        return features
