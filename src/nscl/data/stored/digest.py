"""A digest of a stream's labels and samples: different data, different digest."""

import hashlib

from nscl.data.images.files import FileSplit
from nscl.data.inputs import parts
from nscl.data.tasks import Split, TaskStream


def stream_digest(stream: TaskStream) -> str:
    """Sixteen hexadecimal digits; pictures that stay in their files count by name.

    >>> from nscl.data import open_stream
    >>> stream = open_stream("split-digits-5")
    >>> stream_digest(stream) == stream_digest(open_stream("split-digits-5"))
    True
    >>> stream_digest(stream) == stream_digest(stream.restrict(4))
    False
    """
    found = hashlib.sha256(repr((stream.scenario, stream.mean, stream.std)).encode())
    for task in stream:
        for split in (task.train, task.test):
            _add(found, split)
    return found.hexdigest()[:16]


def _add(found: "hashlib._Hash", split: Split) -> None:
    found.update(split.labels.cpu().numpy().tobytes())
    if isinstance(split, FileSplit):
        found.update("\0".join(path.name for path in split.files).encode())
        return
    for tensor in parts(split.inputs):
        found.update(tensor.contiguous().cpu().numpy().tobytes())
