"""The list of methods says what their classes say, without importing them."""

import subprocess
import sys

import pytest

from nscl.errors import NsclError
from nscl.methods import METHODS, load_method
from nscl.methods.registry import method_info, stores_of


@pytest.mark.parametrize("name", METHODS)
def test_the_list_and_the_class_agree(name: str) -> None:
    info, kind = METHODS[name], load_method(name)
    assert info.name == name
    assert set(info.scenarios) == set(kind.scenarios)
    assert f"{kind.__module__}:{kind.__name__}" == info.target
    assert info.stores == stores_of(name)


def test_a_method_of_ones_own_is_described_by_its_path_and_asked_what_it_stores() -> None:
    path = METHODS["gem"].target
    info = method_info(path)
    assert (info.name, info.target, info.description) == (path, path, "a method of your own")
    assert stores_of(path) == load_method("gem").stores


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adm-nscl", "there is no method 'adm-nscl' (did you mean 'adam-nscl'?); known: finetune,"),
        ("mine.Mine", "there is no method 'mine.Mine': write your own as 'mine:Mine'"),
        ("zzzz", "there is no method 'zzzz'; known: "),
    ],
)
def test_an_unknown_name_suggests_what_was_meant(name: str, message: str) -> None:
    with pytest.raises(NsclError) as caught:
        method_info(name)
    assert str(caught.value).startswith(message)


def test_looking_methods_up_needs_no_torch() -> None:
    code = (
        "import sys; from nscl.methods.registry import METHODS, method_info\n"
        "assert method_info('gem') is METHODS['gem']\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
