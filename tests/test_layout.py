"""The layout of the code: small folders that say what they hold, and tests that mirror them."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES, TESTS = ROOT / "src" / "nscl", ROOT / "tests"
MOST_MODULES = 9
DOCSTRING_LINES = range(2, 7)

#: Modules without a test file of their own name, and why.
WITHOUT_TESTS = {
    "__main__": "one call of cli.app; every test that starts a process goes through it",
    "_version": "one constant, compared with the citation in test_repository",
    "errors": "classes without code of their own; those who raise them are tested for it",
    "data/errors": "classes without code of their own, and `reading`, tested with its readers",
    "metrics/errors": "a class without code of its own",
    "models/errors": "a class without code of its own",
    "reporting/errors": "classes without code of their own",
    "results/errors": "classes without code of their own",
    "training/config/errors": "a class without code of its own",
    "data/readers/raw": "a dataclass without code: what every reader returns",
    "data/texts/raw": "dataclasses without code: what every reader of texts returns",
    "messages": "two functions whose doctests state all that they do",
    "integrations/peft_adapters": "a part of integrations/peft: test_peft has all three",
    "integrations/peft_layers": "a part of integrations/peft: test_peft has all three",
}

#: Folders of tests that mirror no folder of the sources, and why.
TESTS_OF_NO_FOLDER = {
    "benchmarks": "of benchmarks/, which stands beside the package",
    "core/promises": "of what several modules of the core promise together",
    "golden": "of the runs under results/, whatever module names them",
}

#: Public classes that share their name on purpose.
SAME_NAME = {
    "KeepMemory": "the callback of Lightning and of transformers, each in its own module",
}


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.stem != "__init__")


def packages() -> Iterator[Path]:
    """The package and all of its folders that hold modules."""
    for path in sorted(SOURCES.rglob("__init__.py")):
        yield path.parent


def named(path: Path) -> str:
    return path.relative_to(SOURCES).as_posix().removesuffix(".py")


def without_tests() -> set[str]:
    """Modules without a test file of their own name in the folder that mirrors theirs."""
    return {
        named(path)
        for folder in packages()
        for path in modules(folder)
        if not (TESTS / folder.relative_to(SOURCES) / f"test_{path.stem}.py").exists()
    }


def test_no_folder_has_more_modules_than_one_can_keep_in_mind() -> None:
    sizes = {named(folder): len(modules(folder)) for folder in packages()}
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}


def test_every_module_has_a_test_file_of_its_name_or_a_reason() -> None:
    missing = without_tests()
    assert missing - set(WITHOUT_TESTS) == set()
    assert set(WITHOUT_TESTS) - missing == set(), "these have a test file, or are gone"


def test_every_folder_of_tests_mirrors_one_of_the_sources() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    missing = {folder.as_posix() for folder in folders if not (SOURCES / folder).is_dir()}
    assert missing == set(TESTS_OF_NO_FOLDER)


def test_every_folder_says_in_a_few_lines_what_it_holds() -> None:
    lines = {}
    for folder in packages():
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        lines[named(folder)] = len(docstring.splitlines())
    del lines["."]  # the library itself: its docstring is its first page
    wrong = {name for name, count in lines.items() if count not in DOCSTRING_LINES}
    assert wrong == set()


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in SOURCES.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(named(path))
    twice = {name for name, found in places.items() if len(found) > 1}
    assert twice - set(SAME_NAME) == set()
    assert set(SAME_NAME) - twice == set(), "these names are no longer shared"
