"""The numbers of one record of ``metrics.jsonl``, under names that stay the same everywhere."""

from collections.abc import Iterator, Mapping
from typing import Any


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Every number of a record as ``kind/field``; the values of a list are counted from one.

    Words and missing values are left out: neither TensorBoard nor W&B can draw them.

    >>> numbers({"kind": "epoch", "phase": "train", "loss": 0.5, "lr": [0.1, 0.2]})
    {'epoch/loss': 0.5, 'epoch/lr/1': 0.1, 'epoch/lr/2': 0.2}
    >>> numbers({"kind": "task", "accuracies": [99.0], "bwt": None})
    {'task/accuracies/1': 99.0}
    """
    kind = str(record["kind"])
    fields = {name: value for name, value in record.items() if name != "kind"}
    return dict(_flat(kind, fields))


def _flat(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}/{key}", inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value, start=1):
            yield from _flat(f"{name}/{number}", inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)
