"""The site of the documentation, as far as it can be checked where MkDocs is not installed.

``make docs`` builds it and checks every link; here its navigation is held to the files, and the
hooks that adapt the pages are held to small truths.
"""

import doctest
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import nscl
from nscl.methods import METHODS, load_method

ROOT = Path(__file__).parents[1]
SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
NAVIGATION = re.search(r"^nav:\n((?: .*\n)+)", SETTINGS, re.MULTILINE)
NOTEBOOKS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("notebooks/*.ipynb"))
DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))

# Methods whose page says "Options: those of", and of which.
OPTIONS_OF = {"a-gem": "gem", "mega": "gem", "sgp": "gpm", "connector": "adam-nscl"}


@cache
def hook(name: str) -> ModuleType:
    """A module of ``docs/hooks``, which is no package: MkDocs loads it from its file."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/hooks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def navigation() -> list[str]:
    assert NAVIGATION is not None
    return re.findall(r"([\w/.-]+\.md)$", NAVIGATION.group(1), re.MULTILINE)


def pages() -> set[str]:
    """Every page: documents, those of the repository's root, the methods' and the notebooks'."""
    documents = {path.removeprefix("docs/") for path in DOCUMENTS}
    root_pages = {*hook("repository_links").ROOT_PAGES.values()}
    return documents | root_pages | {*method_pages()} | {*notebook_pages()}


@cache
def method_pages() -> dict[str, str]:
    made: dict[str, str] = hook("method_pages").method_pages(ROOT)
    return made


@cache
def notebook_pages() -> dict[str, str]:
    made: dict[str, str] = hook("notebook_pages").notebook_files(ROOT)
    return {path: text for path, text in made.items() if path.endswith(".md")}


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(navigation()) == sorted(pages())


def test_every_public_name_is_in_the_reference() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/api/*.md"))
    entries = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    special = {"__version__", "integrations"}
    assert {f"nscl.{name}" for name in nscl.__all__ if name not in special} <= entries
    assert {f"nscl.integrations.{name}" for name in nscl.integrations.__all__} <= entries
    assert "`nscl.__version__`" in text


@pytest.mark.parametrize("document", ["CHANGELOG.md", "CONTRIBUTING.md", *DOCUMENTS, *NOTEBOOKS])
def test_links_lead_to_pages_or_to_the_repository(document: str) -> None:
    links = hook("repository_links")
    page = links.page_of(document)
    repository = "https://example.org/nscl"
    made = notebook_pages().get(page)
    text = made or (ROOT / document).read_text(encoding="utf-8")
    found = links.relink(text, document=document, page=page, repository=repository)
    for _, target in links.LINK.findall(links.CODE.sub("", found)):
        if target.startswith(f"{repository}/blob/main/"):
            assert (ROOT / target.removeprefix(f"{repository}/blob/main/")).exists()
        elif not target.startswith(("https:", "http:", "#")):
            linked = (ROOT / "docs" / page).parent / target.partition("#")[0]
            assert linked.resolve().relative_to(ROOT / "docs").as_posix() in pages()


def test_links_of_a_method_page_are_those_of_the_specification() -> None:
    links = hook("repository_links")
    assert not doctest.testmod(links).failed
    assert links.relink(
        "[code](../src/nscl)", document="docs/a.md", page="a.md", repository="https://example.org/x"
    ) == "[code](https://example.org/x/blob/main/src/nscl)"  # fmt: skip
    assert links.relink(
        "[a](#ewc) [b](results.md) [c\nd](../LICENSE)\n```text\n[e](#ewc)\n```\n",
        document="docs/methods.md",
        page="methods/ewc.md",
        repository=None,
    ) == "[a](../methods.md#ewc) [b](../results.md) c\nd\n```text\n[e](#ewc)\n```\n"  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_page_with_its_options_and_presets(method: str) -> None:
    page = method_pages()[f"methods/{method}.md"]
    assert page.startswith(f"# {method}\n")
    assert "*When to use*: " in page
    described = page
    if method in OPTIONS_OF:
        described += method_pages()[f"methods/{OPTIONS_OF[method]}.md"]
    options = load_method(method).options_type.model_fields
    assert not [name for name in options if not re.search(rf"`{name}[`=]", described)]
    file = ROOT / f"src/nscl/methods/presets/{method}.toml"
    assert ("## Values in presets" in page) == file.exists()


def test_numbers_of_a_method_are_the_rows_of_the_results() -> None:
    results = (ROOT / "docs/results-first-edition.md").read_text(encoding="utf-8")
    rows = [line for line in results.splitlines() if re.match(r"\| gem(\\\*)? \|", line)]
    page = method_pages()["methods/gem.md"]
    shown = [line for line in page.splitlines() if line in rows]
    assert len(shown) >= 2
    assert "[Ten tasks](results-first-edition.md#ten-tasks) (first edition):" in page
    assert not doctest.testmod(hook("method_pages")).failed


def test_numbers_of_a_method_have_its_variants_in_one_table() -> None:
    page = method_pages()["methods/nscl.md"]
    _, table = page.split("(results.md#beside-lwf-on-poor-features):\n\n")
    first, second = re.findall(r"^\| nscl.*", table.split("\n\n")[0], re.MULTILINE)
    assert first.startswith("| nscl: ")
    assert second.startswith("| nscl without ")


def test_docstrings_become_markdown() -> None:
    text = "Idea::\n\n    a = 1\n\nMore.\n\n>>> f(1)  # doctest: +SKIP\n2\n\nLast."
    assert hook("fences").fenced(text) == (
        "Idea:\n\n```text\na = 1\n```\n\nMore.\n\n```pycon\n>>> f(1)\n2\n```\n\nLast."
    )


def test_faults_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text('<h1 id="here">A</h1><a href="../#top">up</a>')
    index = tmp_path / "index.html"
    index.write_text('<p id="top"><a href="a/#here">a</a><a href="https://example.org">b</a></p>')
    assert hook("built_site").faults(tmp_path) == []
    index.write_text(
        '<p id="up"><a href="a/#there">a</a><a href="b/">b</a></p>'
        '<script src="https://example.org/x.js"></script>'
    )
    assert hook("built_site").faults(tmp_path) == [
        "  a/index.html: no ../#top",
        "  index.html: loads https://example.org/x.js",
        "  index.html: no a/#there",
        "  index.html: no b/",
    ]
