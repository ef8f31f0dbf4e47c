"""The walks: what counts as a call and a hop, and that all three still run."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import walk

ROOT = Path(__file__).parents[2]

FILES = {
    "first.py": """
def go():
    from walked import second
    return [second.twice(n) for n in range(2)], list(second.count()), helper()

def helper():
    return sorted([2, 1], key=lambda n: -n)
""",
    "second.py": """
from walked import third
third.leaf()  # while importing: not counted

def twice(n):
    return third.leaf() + sum(map(third.Leaf().leaf, [n]))

def count():
    yield 1
    yield 2
""",
    "third.py": """
def leaf():
    return 1

class Leaf:
    def leaf(self, n):
        return n
""",
    "__init__.py": "",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "walked"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "walked"]:
        del sys.modules[name]


def test_calls_of_named_functions_and_hops_between_files(package: Path) -> None:
    first = importlib.import_module("walked.first")
    found = walk.Walk(package)
    with found.tracing():
        first.go()
    assert list(found.calls) == ["first.py", "second.py", "third.py"]
    # first: go, helper; second: twice, twice, count; third: leaf and Leaf.leaf, twice each.
    assert found.calls == {"first.py": 2, "second.py": 3, "third.py": 4}
    assert found.hops == {"second.py": 3, "third.py": 4}
    assert walk.summary("go", found) == "go: 3 files, 7 hops, 9 calls"
    assert "| `second.py` | 3 | 3 |" in walk.table("go", found)


def test_tracing_ends_with_its_block(package: Path) -> None:
    found = walk.Walk(package)
    with pytest.raises(ZeroDivisionError), found.tracing():
        raise ZeroDivisionError
    assert sys.getprofile() is None


def test_all_three_walks_are_as_documented() -> None:
    """In a process of its own: what other tests have cached would not be called again."""
    command = [sys.executable, "-m", "benchmarks.walk"]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    written = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for title in walk.WALKS:
        (files, hops, calls), visited = counted(title, shown)
        (_, documented_hops, _), documented = counted(title, written)
        assert 1 < files <= hops < calls
        assert visited == documented, f"{title}: run {' '.join(command[1:])} again"
        assert hops == pytest.approx(documented_hops, rel=0.1)


def counted(title: str, text: str) -> tuple[tuple[int, ...], set[str]]:
    """Files, hops and calls of a walk, and the files of its table."""
    _, _, section = text.partition(f"### {title}\n")
    rows, found, rest = section.partition(f"\n{title}: ")
    assert found
    counts = re.findall(r"\d+", rest.split("\n")[0])
    return tuple(map(int, counts)), set(re.findall(r"^\| `(.+?)`", rows, re.MULTILINE))
