"""The published sets of intents: CLINC150 and Banking77.

CLINC150: Larson et al., EMNLP 2019, CC BY 3.0; 150 intents in 10 domains. Its part "train" is
trained on and its part "test" tested; "val" and the out-of-scope texts are not used. Banking77:
Casanueva et al., 2020, CC BY 4.0; 77 intents of bank customers.
"""

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from nscl.data.errors import CorruptDataError
from nscl.data.texts.raw import ClassGroup, RawTexts, TextPart
from nscl.data.texts.tables import read_table


def read_clinc150(folder: Path) -> RawTexts:
    """Read ``data_full.json`` and ``domains.json``; classes in the order of the domains."""
    domains, parts = _json(folder / "domains.json"), _json(folder / "data_full.json")
    try:
        names = tuple(intent for intents in domains.values() for intent in intents)
        train, test = (_of_pairs(parts[part], names) for part in ("train", "test"))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise CorruptDataError(f"{folder} has not CLINC150's layout ({problem!r})") from None
    ends = accumulate(len(intents) for intents in domains.values())
    groups = tuple(
        ClassGroup(name, tuple(range(end - len(intents), end)))
        for (name, intents), end in zip(domains.items(), ends, strict=True)
    )
    return RawTexts(train, test, names, groups)


def read_banking77(folder: Path) -> RawTexts:
    """Read ``train.csv`` and ``test.csv``; classes in the order of ``categories.json``."""
    names = tuple(_json(folder / "categories.json"))
    train, test = (_categorised(folder / f"{part}.csv", names) for part in ("train", "test"))
    return RawTexts(train, test, names)


def _categorised(path: Path, names: tuple[str, ...]) -> TextPart:
    rows = read_table(path, label="category")
    for row in rows:
        if row.label not in names:
            raise CorruptDataError(f"{path}, line {row.line}: no category {row.label!r}")
    return _of_pairs([(row.text, row.label) for row in rows], names)


def _of_pairs(pairs: Any, names: tuple[str, ...]) -> TextPart:
    number = {name: label for label, name in enumerate(names)}
    labels = np.array([number[name] for _, name in pairs], dtype=np.int64)
    return TextPart(tuple(text for text, _ in pairs), labels)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as problem:
        raise CorruptDataError(f"{path} is not JSON ({problem})") from None
