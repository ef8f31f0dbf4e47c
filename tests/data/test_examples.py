"""Every example in docs/data.md is run; pytest itself runs those of the docstrings."""

import doctest
import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "data.md"


def run(test: doctest.DocTest) -> int:
    output: list[str] = []
    runner = doctest.DocTestRunner()
    results = runner.run(test, out=output.append, clear_globs=False)
    assert results.failed == 0, "".join(output)
    return results.attempted


def test_the_document(picture_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture_folder.rename(picture_folder.with_name("photos"))
    monkeypatch.chdir(picture_folder.parent)
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", None, 0)
        assert run(test) > 0
        names.update(test.globs)
    assert len(blocks) >= 8
