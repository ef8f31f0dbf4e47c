"""From texts to token ids and masks: a vocabulary by hashing, or a pretrained encoder's own.

``words`` needs no file and no network: a word's number is its CRC-32 within the vocabulary, so it
is the same on every machine. ``words:N`` has N numbers instead of 4,096. ``minilm`` and ``hf:PATH``
are the tokenizers beside pretrained weights, read by transformers.
"""

import re
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from nscl import pretrained
from nscl.data.errors import DataError
from nscl.data.texts.split import IDS, MASK
from nscl.messages import did_you_mean

DEFAULT_LENGTH = 32  # longer than nine in ten texts of CLINC150 and Banking77
_WORDS = 4096
_WORD = re.compile(r"\w+|[^\w\s]")
_PADDING, _BEGINNING, _FIRST_WORD = 0, 1, 2
_NAMES = ("words", "minilm", "hf:PATH")


class Tokenizer(Protocol):
    """Texts to ``input_ids`` and ``attention_mask``, both ``[N, length]``."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        ...

    def __call__(self, texts: Sequence[str], length: int) -> dict[str, Tensor]:
        """Tokenize; a longer text loses its end, a shorter one is padded."""
        ...


def open_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of that name.

    >>> tokens = open_tokenizer("words")(["My card!", "my card"], 5)
    >>> tokens["attention_mask"]
    tensor([[1, 1, 1, 1, 0],
            [1, 1, 1, 0, 0]])
    >>> bool((tokens["input_ids"][0, :3] == tokens["input_ids"][1, :3]).all())
    True
    """
    kind, _, size = name.partition(":")
    if kind == "words":
        return Words(_size(name, size) if size else _WORDS)
    if pretrained.is_pretrained(name):
        return Pretrained(name)
    hint = did_you_mean(name, _NAMES)
    raise DataError(f"there is no tokenizer {name!r}{hint}; known: {', '.join(_NAMES)}")


class Words:
    """Words and punctuation marks, numbered by their hash; two words may share a number."""

    def __init__(self, vocabulary: int = _WORDS) -> None:
        self.vocabulary = vocabulary

    def __call__(self, texts: Sequence[str], length: int) -> dict[str, Tensor]:
        """Tokenize; the first token of every text is that of its beginning."""
        found = [[_BEGINNING, *map(self._number, _WORD.findall(text.lower()))] for text in texts]
        cut = [tokens[:length] for tokens in found]
        ids = torch.tensor([tokens + [_PADDING] * (length - len(tokens)) for tokens in cut])
        return {IDS: ids, MASK: (ids != _PADDING).long()}

    def _number(self, word: str) -> int:
        return _FIRST_WORD + zlib.crc32(word.encode()) % (self.vocabulary - _FIRST_WORD)


class Pretrained:
    """The tokenizer in the folder of a pretrained encoder."""

    def __init__(self, name: str) -> None:
        self._tokenizer: Any = pretrained.read(name, "AutoTokenizer")
        if self._tokenizer.pad_token is None:  # language models have none; the mask hides it
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self.vocabulary = len(self._tokenizer)

    def __call__(self, texts: Sequence[str], length: int) -> dict[str, Tensor]:
        """Tokenize, with the encoder's own special tokens."""
        found = self._tokenizer(
            list(texts),
            padding="max_length",
            padding_side="right",
            truncation=True,
            max_length=length,
            return_tensors="pt",
        )
        return {IDS: found[IDS], MASK: found[MASK]}


def _size(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) <= _FIRST_WORD:
        raise DataError(f"tokenizer {name!r}: words:N needs a number above {_FIRST_WORD}")
    return int(text)
