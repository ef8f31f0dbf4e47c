"""Every python block of the documents runs, in order, in one namespace per document.

A block of ``>>>`` lines is a doctest: its output is compared. Any other python block is executed.
What must not run is marked ``text`` or ``sh``.
"""

import copy
import doctest
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.methods import METHODS, load_method

ROOT = Path(__file__).parents[1]
PAGES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *PAGES]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CITATION = re.compile(r'(docs/[a-z-]+\.md), ("[^"]+"(?:(?:,| and|, and) "[^"]+")*)')
COLUMNS = 100


def blocks(document: str) -> list[tuple[int, str]]:
    """Line number and text of every python block."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start()) + 2, match.group(2))
        for match in FENCE.finditer(text)
        if match.group(1) == "python"
    ]


def run(source: str, line: int, document: str, names: dict[str, Any]) -> None:
    if source.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(source, names, document, document, line - 1)
        output: list[str] = []
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        runner.run(test, out=output.append, clear_globs=False)
        names.update(test.globs)
        assert runner.failures == 0, "".join(output)
    else:
        # Blank lines in front: a traceback then names the line of the document.
        exec(compile("\n" * (line - 1) + source, document, "exec"), names)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> None:
    for batch in batches * 20:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), torch.arange(len(batch)) % 3).backward()
        optimizer.step()


def what_a_reader_has() -> dict[str, Any]:
    """The ten lines of the README begin where a reader is: a model, an optimizer, a loop, data."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    spread = torch.logspace(0, -3, 8)  # real features use some directions much more than others
    loaders = [[torch.randn(96, 8) * spread @ torch.randn(8, 8)] for _ in range(2)]
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), 1e-2),
        "train": train,
        "task_1": loaders[0],
        "task_2": loaders[1],
        "task_1_loader": loaders[0],
        "task_2_loader": loaders[1],
    }


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The matrices are tiny: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": what_a_reader_has,
    "docs/index.md": what_a_reader_has,
}


# The page about data needs a folder of pictures, the one about frameworks needs the frameworks:
# tests/data/test_examples.py and tests/integrations/test_snippets.py run them.
ELSEWHERE = ("docs/data.md", "docs/integrations.md")


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if blocks(d) and d not in ELSEWHERE])
def test_python_blocks_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # documents may save files
    names = {"__name__": document, **GIVEN.get(document, dict)()}
    for line, source in blocks(document):
        run(source, line, document, names)


def test_the_readme_protects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the ten lines leave behind is a memory that holds task 1, beside a file of it."""
    monkeypatch.chdir(tmp_path)
    names = what_a_reader_has()
    (line, source), *_ = blocks("README.md")
    run(source, line, "README.md", names)
    model, memory = names["model"], names["memory"]
    assert memory.tasks == 2
    free = copy.deepcopy(model)
    held = nscl.Memory.load(tmp_path / "memory.safetensors", model)
    moved = []
    for network in (model, free):
        before = network(names["task_1"][0]).detach()
        optimizer = torch.optim.Adam(network.parameters(), 1e-2)
        if network is model:
            held.protect(optimizer)
        train(network, optimizer, [torch.randn(48, 8)])
        moved.append((network(names["task_1"][0]) - before).norm().item())
    assert moved[0] < 0.5 * moved[1]


@pytest.mark.parametrize("document", [*DOCUMENTS, "CHANGELOG.md", "docs/own-method.md"])
def test_links_lead_somewhere(document: str) -> None:
    here = (ROOT / document).parent
    text = FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text):
        path, _, anchor = (target[0] or target[1]).partition("#")
        if path.startswith(("http:", "https:")):
            continue
        linked = here / path if path else ROOT / document
        assert linked.exists(), f"{document}: {path}"
        if anchor:
            assert anchor in anchors(linked), f"{document}: {path}#{anchor}"


def anchors(document: Path) -> set[str]:
    """Headings as links write them."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCUMENTS, "CHANGELOG.md", "docs/own-method.md"])
def test_paths_and_names_exist(document: str) -> None:
    """A file of the repository that is named in `backticks` is there."""
    text = FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    named = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w/.]+\.\w+)`", text)
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("document", sorted(path.name for path in ROOT.glob("*.md")) + PAGES)
def test_lines_are_wrapped(document: str) -> None:
    """Prose fits beside a diff; rows of tables, code and links that cannot be broken may not."""
    text = FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    prose = [line for line in text.splitlines() if not line.startswith("|") and "](" not in line]
    assert not [line for line in prose if len(line) > COLUMNS]


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "experiments", "examples"])
def test_cited_sections_of_the_documents_exist(folder: str) -> None:
    """Docstrings, comments and TOML cite ``docs/PAGE.md, "Title"``, or several titles of a page."""
    files = (path for kind in ("py", "toml") for path in (ROOT / folder).rglob(f"*.{kind}"))
    for path in files:
        for page, titles in citations(path.read_text(encoding="utf-8")):
            text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
            missing = titles - {*re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
            assert not missing, f"{path} cites {missing} of {page}"


def citations(source: str) -> Iterator[tuple[str, set[str]]]:
    """Pages with the titles that are cited of them; a citation may go on in the next line."""
    for found in CITATION.finditer(re.sub(r"\s*\n[ #]*", " ", source)):
        yield found.group(1), set(re.findall(r'"([^"]+)"', found.group(2)))


def test_citations_are_found() -> None:
    one, other = "docs/results.md", "docs/data.md"
    source = f'# of {one}, "One", "Two"\n    # and "Three" ({other},\n    "Four").'
    assert list(citations(source)) == [(one, {"One", "Two", "Three"}), (other, {"Four"})]


@pytest.mark.parametrize("method", METHODS)
def test_every_option_of_a_method_is_in_the_specification(method: str) -> None:
    text = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    options = load_method(method).options_type.model_fields
    assert not [name for name in options if not re.search(rf"`{name}[`=]", text)]


def test_every_module_of_the_core_is_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    modules = {path.stem for path in (ROOT / "src/nscl/core").rglob("*.py")} - {"__init__"}
    assert not {name for name in modules if f"`{name}`" not in text}


def test_every_name_of_the_library_is_in_the_guide() -> None:
    text = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    homes = {name: getattr(getattr(nscl, name), "__module__", "") for name in nscl.__all__}
    mine = {name for name, home in homes.items() if home.startswith(("nscl.core", "nscl.errors"))}
    assert len(mine) >= 11
    assert not {name for name in mine if name not in text}


def test_every_module_of_the_engines_is_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    modules = {path.stem for path in (ROOT / "src/nscl/engines").glob("*.py")} - {"__init__"}
    assert not {name for name in modules if f"`{name}`" not in text}
