"""The user's pictures in class folders: in memory if they fit, else decoded during training."""

from pathlib import Path

import torch

from nscl.data.errors import reading
from nscl.data.images.files import FileSplit, decode_files
from nscl.data.notices import Notify, log_notice
from nscl.data.readers.folder import FolderPart, list_folder
from nscl.data.streams import Selector
from nscl.data.tasks import Split

DEFAULT_SIZE = 32
DEFAULT_MAX_BYTES = 4 * 2**30


def folder_selector(
    path: Path,
    *,
    size: int | None = None,
    max_bytes: int | None = None,
    notify: Notify = log_notice,
) -> tuple[Selector, tuple[str, ...]]:
    """Return the selector of tasks from class folders, and the names of the classes.

    Decoded pictures are not cached on disk. They are private, and their owner may not want a copy.
    """
    side = size or DEFAULT_SIZE
    limit = DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
    with reading(path):
        listing = list_folder(path)
    need = (len(listing.train.files) + len(listing.test.files)) * 3 * side * side
    if need > limit:
        notify(
            f"{path} takes {need / 2**20:,.1f} MiB decoded, more than max_bytes={limit:,}: "
            "its pictures are decoded by a DataLoader's workers while training, which is slower"
        )

    def select(group: tuple[int, ...]) -> tuple[Split, Split]:
        parts = (listing.train, listing.test)
        train, test = (_cut_files(part, group, (side, side), lazy=need > limit) for part in parts)
        return train, test

    return select, listing.class_names


def _cut_files(
    part: FolderPart, group: tuple[int, ...], size: tuple[int, int], *, lazy: bool
) -> Split:
    position = {label: place for place, label in enumerate(group)}
    rows = [row for row, label in enumerate(part.labels.tolist()) if label in position]
    files = [part.files[row] for row in rows]
    labels = torch.tensor([position[int(part.labels[row])] for row in rows], dtype=torch.int64)
    return FileSplit(files, labels, size=size) if lazy else Split(decode_files(files, size), labels)
