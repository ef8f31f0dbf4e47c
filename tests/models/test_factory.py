"""``package.module:factory``: imported, called and checked, with one line for every mistake."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from nscl.errors import NsclError
from nscl.models import ModelError
from nscl.models.factory import call_factory, load_factory

THEIRS = """
from torch import nn

class Models:
    def tiny(shape): return nn.Flatten()

def plain(shape): return nn.Flatten()
def any_option(shape, **options): return nn.Linear(shape[0], options["width"])
def a_dict(shape): return {"model": 1}
def failing(shape): raise RuntimeError("no weights\\nfound")
number = 3
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "factory_of_others.py").write_text(THEIRS)
    (tmp_path / "broken_factory.py").write_text("raise OSError('cannot open\\nweights')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "factory_of_others"
    for name in ("factory_of_others", "broken_factory"):
        sys.modules.pop(name, None)


def test_a_function_or_an_attribute_of_a_class_is_found(theirs: str) -> None:
    for name in ("plain", "Models.tiny"):
        factory = load_factory(f"{theirs}:{name}")
        assert isinstance(call_factory(factory, [3], name=name, options={}), nn.Flatten)
    assert load_factory("torch.nn:Linear") is nn.Linear


def test_options_go_through_where_any_are_taken(theirs: str) -> None:
    factory = load_factory(f"{theirs}:any_option")
    found = call_factory(factory, [3], name="x", options={"width": 7})
    assert isinstance(found, nn.Linear)
    assert (found.in_features, found.out_features) == (3, 7)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("factory_of_others:", "write package.module:factory"),
        (":plain", "write package.module:factory"),
        ("no_such_package.models:net", "cannot import 'no_such_package.models'"),
        ("broken_factory:net", "OSError: cannot open weights"),
        ("factory_of_others:plian", "there is no 'plian' to build the model"),
        ("factory_of_others:plian", "did you mean 'plain'?"),
        ("factory_of_others:Models.tinny", "did you mean 'tiny'?"),
        ("factory_of_others:number", "is a int, not a function or class"),
    ],
)
def test_what_cannot_be_imported_is_named(theirs: str, path: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_factory(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a_dict", {}, "must be a torch.nn.Module, its factory returned a dict"),
        ("failing", {}, "failed for images (1, 8, 8): RuntimeError: no weights found"),
        ("plain", {"width": 3}, "has no option 'width': it has none"),
    ],
)
def test_what_makes_no_model_is_named(
    theirs: str, name: str, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        call_factory(load_factory(f"{theirs}:{name}"), (1, 8, 8), name=name, options=options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_of_the_library_pass_as_they_are() -> None:
    def refusing(shape: tuple[int, ...]) -> nn.Module:
        raise NsclError("too small")

    with pytest.raises(NsclError, match=r"^too small$"):
        call_factory(refusing, (1, 1, 1), name="x", options={})
