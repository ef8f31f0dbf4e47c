"""``package.module:Class``: imported, or one line that says what is missing."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nscl.errors import NsclError
from nscl.methods.loading import import_method

MINE = """
import math
from nscl.methods import Method


class Mine(Method):
    stores = "data"


class Other(Method):
    stores = "all"


class Plain:
    pass
"""
FILES = {
    "own_methods": MINE,
    "own_broken": "class Broken(:\n",
    "own_missing": "import surely_not_installed\n",
    "own_raising": "raise RuntimeError('not\\ntoday')\n",
    "own_empty": "",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name, None)


def test_a_class_of_ones_own_is_found(folder: Path) -> None:
    found = import_method("own_methods:Mine")
    assert (found.__name__, found.stores) == ("Mine", "data")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("own_method:Mine", "did you mean 'own_methods'?"),
        ("nowhere.at_all:Mine", "there is no module 'nowhere'"),
        ("own_methods:Mind", "did you mean 'Mine'?"),
        ("own_methods:zzzzzz", "; it has Method, Mine, Other"),
        ("own_empty:Mine", "; it has no method"),
        ("own_methods:Plain", "must be a class that derives from nscl.methods.Method"),
        ("own_methods:math", "must be a class that derives from nscl.methods.Method"),
        ("own_methods:Other", "stores is 'all', but must be one of nothing, parameters, data"),
        ("own_methods:", "write package.module:Class"),
        (":Mine", "write package.module:Class"),
        ("own_broken:Broken", "SyntaxError: invalid syntax (own_broken.py, line 1)"),
        ("own_missing:Missing", "No module named 'surely_not_installed'"),
        ("own_raising:Raising", "RuntimeError: not today"),
    ],
)
def test_what_is_missing_is_named_in_one_line(folder: Path, target: str, message: str) -> None:
    with pytest.raises(NsclError) as caught:
        import_method(target)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
