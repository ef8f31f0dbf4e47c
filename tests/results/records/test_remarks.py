"""Notes and remarks of results: each once, in their order."""

from collections.abc import Callable

from nscl.results import Result, remarks


def test_every_note_and_remark_stands_once(make_result: Callable[..., Result]) -> None:
    results = [
        make_result(seed=0, notes={"pool": "digits"}, remarks=("at chance",)),
        make_result(seed=1, notes={"pool": "digits", "kept": 5}, remarks=()),
    ]
    assert remarks(results) == ("pool digits", "at chance", "kept 5")
    assert remarks([]) == ()
