"""Random networks of supported layers, and old data of low rank: what Lemma 1 is tested on."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import reject
from hypothesis import strategies as st
from torch import Tensor, nn

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (nn.ReLU, nn.Tanh, nn.GELU, nn.Identity)


@dataclass
class Case:
    """A model with the shape of its inputs, without the batch dimension."""

    model: nn.Module
    shape: tuple[int, ...]
    tokens: int = 0

    def old(self, rank: int = 2, samples: int = 12) -> Tensor:
        """Inputs that span few directions; repeated samples keep every deeper layer's rank low."""
        if self.tokens:
            return torch.randint(0, 3, (samples, *self.shape))
        family = torch.randn(rank, *self.shape, dtype=torch.float64)
        return family[torch.arange(samples) % rank]

    def new(self, samples: int = 16) -> Tensor:
        if self.tokens:
            return torch.randint(0, self.tokens, (samples, *self.shape))
        return 3 * torch.randn(samples, *self.shape, dtype=torch.float64)


class Attention(nn.Module):
    """Cross- and self-attention with both batch orders, packed or separate projections."""

    def __init__(self, size: int, *, batch_first: bool, separate: bool, bias: bool) -> None:
        super().__init__()
        other = size + 1 if separate else size
        self.context = nn.Linear(size, other)
        self.attention = nn.MultiheadAttention(
            size, 2, kdim=other, vdim=other, batch_first=batch_first, bias=bias
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.context(x)
        if not self.attention.batch_first:
            x, y = x.transpose(0, 1), y.transpose(0, 1)
        out = self.attention(x, key=y, value=y, need_weights=False)[0]
        return out if self.attention.batch_first else out.transpose(0, 1)


@st.composite
def mlps(draw: st.DrawFn) -> Case:
    torch.manual_seed(draw(st.integers(0, 999)))
    widths = draw(st.lists(st.integers(8, 24), min_size=2, max_size=4))
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b, bias=draw(st.booleans())), draw(st.sampled_from(ACTIVATIONS))()]
    layers.append(nn.Linear(widths[-1], 3, bias=draw(st.booleans())))
    return Case(nn.Sequential(*layers).double(), (widths[0],))


@st.composite
def convnets(draw: st.DrawFn) -> Case:
    torch.manual_seed(draw(st.integers(0, 999)))
    dims = draw(st.sampled_from([1, 2, 2, 2, 3]))
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    transpose = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
    channels, layers = 8, list[nn.Module]()
    for _ in range(draw(st.integers(1, 2))):
        groups = draw(st.sampled_from([1, 2, 4]))
        out = draw(st.sampled_from([8, 12]))
        layers.append(
            conv(
                channels,
                out,
                draw(st.integers(1, 3)),
                stride=draw(st.integers(1, 2)),
                padding=draw(st.integers(0, 1)) + 1,
                dilation=draw(st.integers(1, 2)),
                groups=groups,
                bias=draw(st.booleans()),
                padding_mode=draw(st.sampled_from(["zeros", "zeros", "circular", "replicate"])),
            )
        )
        layers.append(draw(st.sampled_from(ACTIVATIONS))())
        channels = out
    if draw(st.booleans()):
        groups = draw(st.sampled_from([1, 2]))
        layers.append(transpose(channels, 8, 2, stride=2, groups=groups, bias=draw(st.booleans())))
    pool = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[dims - 1]
    head = [pool(2), nn.Flatten(), nn.LazyLinear(3)]
    model = nn.Sequential(*layers, *head).double()
    shape = (8, *(draw(st.integers(3, 5)) for _ in range(dims)))
    try:
        model(torch.zeros(1, *shape, dtype=torch.float64))
    except RuntimeError:  # a kernel that does not fit on its input
        reject()
    return Case(model, shape)


@st.composite
def attentions(draw: st.DrawFn) -> Case:
    torch.manual_seed(draw(st.integers(0, 999)))
    size = draw(st.sampled_from([8, 12]))
    parts: list[nn.Module] = [
        Attention(
            size,
            batch_first=draw(st.booleans()),
            separate=draw(st.booleans()),
            bias=draw(st.booleans()),
        ),
        nn.Flatten(),
        nn.Linear(3 * size, 3),
    ]
    if draw(st.booleans()):
        return Case(nn.Sequential(nn.Embedding(11, size), *parts).double(), (3,), tokens=11)
    return Case(nn.Sequential(*parts).double(), (3, size))


def cases() -> st.SearchStrategy[Case]:
    return st.one_of(mlps(), convnets(), attentions())
