"""MobileNetV2 (Sandler et al., CVPR 2018), with the names of torchvision's, whose weights it loads.

A block widens with a 1x1 convolution, filters each channel with a 3x3 one and narrows with a linear
1x1 one. Read ``mobilenet_v2-b0353104.pth`` as ``--model.weights`` to continue from ImageNet; these
weights are used to pictures of 96 pixels and more (``--model.size``).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nscl.messages import one_line
from nscl.models.errors import ModelError
from nscl.models.networks.shapes import check_shape

# expansion, channels, repeats, stride of the first: table 2 of the paper
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
FIRST, LAST = 32, 1280
_HASH = re.compile(r"-([0-9a-f]{8,64})\.pth$")  # torchvision's file names end like this


def _conv(
    before: int, after: int, *, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU6."""
    conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6())


class InvertedResidual(nn.Module):
    """Widen, filter, narrow; added to its input where the shapes agree."""

    def __init__(self, before: int, after: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        widen = [_conv(before, inner)] if expansion > 1 else []
        self.conv = nn.Sequential(
            *widen,
            _conv(inner, inner, kernel=3, stride=stride, groups=inner),
            nn.Conv2d(inner, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, before, H, W]`` to ``[N, after, H / stride, W / stride]``."""
        out: Tensor = self.conv(x)
        return x + out if self.adds else out


class MobileNetV2(nn.Module):
    """Images ``[N, 3, H, W]`` to features ``[N, 1280]``, or to logits of ``classes``."""

    def __init__(self, classes: int | None = None) -> None:
        super().__init__()
        self.out_features = LAST if classes is None else classes
        channels = STAGES[-1][1]
        self.features = nn.Sequential(
            _conv(3, FIRST, kernel=3, stride=2), *_blocks(), _conv(channels, LAST)
        )
        self.classifier: nn.Sequential | None = None
        if classes is not None:
            self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(LAST, classes))
        self.apply(_initialise)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to features, or logits."""
        pooled = F.adaptive_avg_pool2d(self.features(x), 1).flatten(1)
        return pooled if self.classifier is None else self.classifier(pooled)


def _blocks() -> Iterator[InvertedResidual]:
    channels = FIRST
    for expansion, after, repeats, stride in STAGES:
        for number in range(repeats):
            first = stride if number == 0 else 1
            yield InvertedResidual(channels, after, stride=first, expansion=expansion)
            channels = after


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")


def mobilenetv2(image_shape: Sequence[int], *, weights: str | None = None) -> MobileNetV2:
    """Build the network for colour images; ``weights`` is a file of torchvision's state dict."""
    channels, height, width = check_shape(image_shape)
    if channels != 3 or min(height, width) < 32:
        raise ModelError(
            f"mobilenetv2 takes colour images of at least 32 x 32, not {channels} x {height} x "
            f"{width}: resize them with --model.size"
        )
    network = MobileNetV2()
    if weights is not None:
        load_weights(network, Path(weights))
    return network


def load_weights(network: MobileNetV2, path: Path) -> None:
    """Load torchvision's state dict strictly; a network without a head leaves out its head."""
    state = _read(path)
    if network.classifier is None:
        state = {k: value for k, value in state.items() if not k.startswith("classifier.")}
    try:
        network.load_state_dict(state)
    except RuntimeError as problem:
        raise ModelError(f"{path} is not of MobileNetV2: {one_line(problem)[:200]}") from None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise ModelError(f"{path} cannot be read ({problem.strerror or problem})") from None
    named = _HASH.search(path.name)
    if named and not hashlib.sha256(content).hexdigest().startswith(named[1]):
        raise ModelError(f"{path} is corrupt: its SHA-256 does not begin as its name says")
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:
        raise ModelError(f"{path} is no file of weights: {one_line(problem)[:200]}") from None
    if not isinstance(state, Mapping):
        raise ModelError(f"{path} has a {type(state).__name__}, not a state dict")
    return state
