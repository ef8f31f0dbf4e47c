"""What may be called a batch."""

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from nscl.core.capture.batch import call, describe, samples_in, to_device
from nscl.errors import FeatureError

CPU, META = torch.device("cpu"), torch.device("meta")
Pair = namedtuple("Pair", "image label")
X, Y = torch.randn(4, 3), torch.arange(4)


class Model(nn.Module):
    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return scale * x


@pytest.mark.parametrize(
    "batch", [X, (X, Y), [X, Y], Pair(X, Y), {"x": X}, OrderedDict(x=X, scale=1.0), (X,)]
)
def test_batches_of_every_kind_reach_the_model(batch: Any) -> None:
    assert torch.equal(call(Model(), to_device(batch, CPU)), X)
    assert samples_in(batch) == 4


def test_named_tuples_stay_what_they_are() -> None:
    moved = to_device(Pair(X, Y), CPU)
    assert isinstance(moved, Pair)
    assert torch.equal(moved.label, Y)


def test_nested_batches_are_moved_whole() -> None:
    moved = to_device({"a": [X, (Y, "text", None)]}, torch.device("meta"))
    assert moved["a"][0].is_meta
    assert moved["a"][1][0].is_meta
    assert moved["a"][1][1:] == ("text", None)


def test_what_knows_how_to_move_itself_keeps_its_type() -> None:
    class Encoding(UserDict[str, Tensor]):
        def to(self, device: torch.device) -> "Encoding":
            return Encoding({key: value.to(device) for key, value in self.items()})

    assert isinstance(to_device(Encoding(x=X), CPU), Encoding)
    packed = pack_sequence([torch.ones(2, 1), torch.ones(1, 1)])
    assert type(to_device(packed, CPU)) is type(packed)


class Items(dict[str, Any]):
    __getattr__ = dict.__getitem__  # raises KeyError for what is not there


class Attributes(dict[str, Any]):
    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


class Holder(UserDict[str, Any]):
    @property
    def x(self) -> Any:
        return self["x"]


@pytest.mark.parametrize("kind", [Items, Attributes, Holder])
def test_mappings_keep_their_type_and_their_attributes(kind: Any) -> None:
    batch = kind(x=X, name="text")
    moved = to_device(batch, META)
    assert type(moved) is kind
    assert moved.x is moved["x"]
    assert moved.x.is_meta
    assert moved["name"] == "text"
    assert batch.x is X


def test_mappings_that_cannot_change_become_dicts() -> None:
    assert to_device(MappingProxyType({"x": X}), CPU) == {"x": X}
    moved = to_device(defaultdict(list, x=X), META)
    assert moved["new"] == []
    assert moved["x"].is_meta


class Sample(tuple[Any, ...]):
    def __new__(cls, image: Any, label: Any) -> "Sample":
        return super().__new__(cls, (image, label))


class Optional(tuple[Any, ...]):
    def __new__(cls, image: Any, label: Any = None) -> "Optional":
        return super().__new__(cls, (image, label))


class Sealed(dict[str, Any]):
    def update(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("sealed")


@pytest.mark.parametrize("batch", [Sample(X, Y), Optional(X, Y), Sealed(x=X)])
def test_a_batch_that_cannot_be_rebuilt_is_named_with_the_way_out(batch: Any) -> None:
    name = type(batch).__name__
    with pytest.raises(FeatureError, match=rf"batch is a {name}, .*give {name} a method to\("):
        to_device(batch, CPU)

    class Movable(type(batch)):  # type: ignore[misc]
        def to(self, device: torch.device) -> Any:
            return self

    made = Movable(X, Y) if isinstance(batch, tuple) else Movable(x=X)
    assert to_device(made, CPU) is made


def test_inference_tensors_are_copied_so_that_gradients_can_flow() -> None:
    with torch.inference_mode():
        made = torch.ones(2)
    with torch.inference_mode(False):
        assert not to_device(made, CPU).is_inference()
    assert to_device(X, CPU) is X


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (torch.zeros(0, 3), 0),
        (torch.zeros(2, 0), 0),
        ((torch.zeros(0, 3), torch.zeros(0)), 0),
        ({"x": torch.zeros(0)}, 0),
        (torch.tensor(1.0), 1),
        ("text", 1),
        ({"name": "text", "x": X}, 4),
        ([], 1),
        ((torch.tensor(3), X), 4),
        ((torch.tensor(3), torch.zeros(0, 3)), 0),
        ({"inputs": {"x": X}}, 4),
        ([{"x": X}], 4),
        ([{"names": ["a", "b"], "x": (b"bytes", X)}], 4),
        ({"edges": torch.zeros(2, 0), "x": X}, 4),
        ([[torch.zeros(0, 3)], {"y": torch.zeros(0)}], 0),
        (torch.nested.nested_tensor([X, X], layout=torch.jagged), 2),
    ],
)
def test_samples(batch: Any, count: int) -> None:
    assert samples_in(batch) == count


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (X, "float32 tensor of shape (4, 3)"),
        ((X, Y), "tuple whose first item is a float32 tensor of shape (4, 3)"),
        ({"a": 1, "b": 2}, "dict with keys a, b"),
        ([], "list"),
        ("text", "str"),
    ],
)
def test_batches_in_words(batch: Any, words: str) -> None:
    assert describe(batch) == words
