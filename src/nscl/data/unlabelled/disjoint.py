"""Whether a pool and a stream share pictures: by their folders, and by their content.

Pictures are compared by thumbnails, which do not depend on how they were scaled. Two thumbnails of
one picture differ by about 1 grey level and rarely by 3; those of two pictures of CIFAR-100 or
TinyImageNet differ by 6 and more. Only some images of the stream are looked for, so the cost is
bounded: the same data set is always found, a few shared pictures among many may be missed.
"""

from pathlib import Path
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.data.catalogue import FOLDER_PREFIX
from nscl.data.images.resize import recolour
from nscl.data.tasks import TaskStream

LOOKED_FOR = 2000  # images of the stream
_SIDE = 8  # pixels of a thumbnail
_ALIKE = 3.0  # grey levels, root mean square
_FLAT = 5.0  # grey levels: with less contrast, thumbnails of different pictures look the same
_CHUNK = 1024

# A pool is opened for every task, and the pictures of a large folder are slow to decode.
_KNOWN: WeakKeyDictionary[TaskStream, Tensor] = WeakKeyDictionary()


def same_place(one: Path, other: Path) -> bool:
    """Whether one of two paths lies inside the other."""
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def lies_in_stream(place: Path, stream: str) -> bool:
    """Whether a ``folder:`` stream's pictures lie in ``place``, or ``place`` among them."""
    if not stream.startswith(FOLDER_PREFIX):
        return False
    root = Path(stream.removeprefix(FOLDER_PREFIX)).expanduser()
    return any(same_place(place, root / part) for part in ("train", "test"))


def shared_images(images: Tensor, stream: TaskStream) -> int:
    """How many of the images show a picture of the stream, among those that are looked for.

    >>> from nscl.data import open_stream
    >>> stream = open_stream("split-digits-5")
    >>> shared_images(stream[0].test.images, stream)
    71
    >>> shared_images(255 - stream[0].test.images, stream)
    0
    """
    if stream not in _KNOWN:
        some = thumbnails(_some_of(stream))
        _KNOWN[stream] = some[some.std(1) > _FLAT]
    known, found = _KNOWN[stream], 0
    for part in torch.split(images, _CHUNK):
        distance = torch.cdist(thumbnails(part), known) / _SIDE
        found += int((distance < _ALIKE).any(1).sum())
    return found


def thumbnails(images: Tensor) -> Tensor:
    """Return ``uint8 [N, C, H, W]`` as grey thumbnails, one row of floats in 0..255 each."""
    parts = [
        F.adaptive_avg_pool2d(_grey(part), (_SIDE, _SIDE)).flatten(1)
        for part in torch.split(images.cpu(), _CHUNK)
    ]
    return torch.cat(parts)


def _grey(images: Tensor) -> Tensor:
    grey = recolour(images, 1) if images.shape[1] == 3 else images
    return grey.float().mean(1, keepdim=True)


def _some_of(stream: TaskStream) -> Tensor:
    """Images of every task's training and test part, evenly spread."""
    splits = [split for task in stream for split in (task.train, task.test)]
    total = sum(len(split) for split in splits)
    parts = []
    for split in splits:
        count = min(len(split), -(-LOOKED_FOR * len(split) // total))
        parts.append(split.gather(torch.linspace(0, len(split) - 1, count).long()).cpu())
    return torch.cat(parts)
