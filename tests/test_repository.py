"""What stands beside the code: it says the same as the package."""

import json
import tomllib
from pathlib import Path

import nscl

ROOT = Path(__file__).parents[1]


def test_the_citation_has_the_version_and_licence_of_the_package() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nversion: {nscl.__version__}\n" in text
    assert f"\nlicense: {project['license']}\n" in text


def test_the_workflow_tests_every_supported_python_by_the_same_commands() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    kinds = [c.rpartition(" ")[2] for c in project["classifiers"] if ":: 3." in c]
    assert json.loads(text.partition("python: ")[2].splitlines()[0]) == kinds
    for command in (ROOT / ".ci/run").read_text().splitlines():
        if command.startswith("make"):
            assert f"- run: {command}\n" in text


def test_adapters_of_frameworks_stay_small() -> None:
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "src/nscl/integrations").glob("*.py")
    }
    assert {"peft.py", "transformers.py"} <= lengths.keys()
    assert {name: length for name, length in lengths.items() if length >= 120} == {}
