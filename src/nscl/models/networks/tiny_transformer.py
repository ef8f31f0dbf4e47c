"""A small transformer for texts: tokens and positions, blocks of attention and MLP, a mean.

Plain torch layers, norms before each part of a block, no dropout: it needs no download and trains
in seconds, so text streams can be tried and tested anywhere.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nscl.models.errors import ModelError
from nscl.models.networks.shapes import check_size, check_text_shape


class Attention(nn.Module):
    """Every position looks at all real tokens, in several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map ``[N, length, width]`` to the same; ``mask`` is 0 at padding."""
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        hidden = mask[:, None, None, :] == 0
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        result: Tensor = self.out((weights @ value).transpose(1, 2).flatten(2))
        return result


class EncoderLayer(nn.Module):
    """Attention, then an MLP, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map ``[N, length, width]`` to the same."""
        x = x + self.attention(self.norm1(x), mask)
        changed: Tensor = self.down(F.gelu(self.up(self.norm2(x))))
        return x + changed


class TinyTransformer(nn.Module):
    """Token ids and mask ``[N, length]`` to features ``[N, width]``: the mean over real tokens."""

    def __init__(
        self, length: int, vocabulary: int, *, width: int = 64, depth: int = 2, heads: int = 4
    ) -> None:
        super().__init__()
        check_size("depth", depth)
        if check_size("width", width) % check_size("heads", heads):
            raise ModelError(f"width {width} is not a multiple of heads={heads}")
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(EncoderLayer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.out_features = width

    def forward(self, texts: Mapping[str, Tensor]) -> Tensor:
        """Map texts to features."""
        ids, mask = texts["input_ids"], texts["attention_mask"]
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x, mask)
        return mean_of_tokens(self.norm(x), mask)


def mean_of_tokens(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean over real tokens; padding has no part in it.

    >>> mean_of_tokens(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
    tensor([[2.]])
    """
    real = mask[..., None].to(hidden.dtype)
    return (hidden * real).sum(1) / real.sum(1)


def tiny_transformer(
    text_shape: Sequence[int], *, width: int = 64, depth: int = 2, heads: int = 4
) -> TinyTransformer:
    """Build the network for texts of ``text_shape`` (length, vocabulary)."""
    length, vocabulary = check_text_shape(text_shape)
    return TinyTransformer(length, vocabulary, width=width, depth=depth, heads=heads)
