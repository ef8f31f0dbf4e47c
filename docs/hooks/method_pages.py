"""One page per method, from the registry, the specification, the presets and the results.

Nothing stands on these pages only, so nothing on them can differ from its source.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from nscl.methods.registry import METHODS, MethodInfo

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
BASELINES = ("finetune", "joint", "independent", "frozen")
RESULTS = ("results.md", "results-first-edition.md")
KEEPS = {"nothing": "nothing", "parameters": "parameters, no old data", "data": "old data"}


def method_page(info: MethodInfo, root: Path) -> str:
    """The page of a method, as if it stood in ``docs/`` like the specification."""
    parts = [
        f"# {info.name}",
        f"{info.description[0].upper()}{info.description[1:]}.",
        facts(info),
        "## Specification",
        specification(info.name, (root / "docs/methods.md").read_text(encoding="utf-8")),
        *presets(root / f"src/nscl/methods/presets/{info.name}.toml"),
        *numbers(info.name, root / "docs"),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def facts(info: MethodInfo) -> str:
    """What the registry says about a method."""
    rows = {
        "Paper": info.paper,
        "Keeps of old tasks": KEEPS[info.stores],
        "Needs": info.needs,
        "Class": f"`{info.target.replace(':', '.')}`",
        "Run it": f"`nscl run split-digits-5 --method {info.name}`",
    }
    return "\n".join(f"- {name}: {value}" for name, value in rows.items() if value != "-")


def specification(name: str, text: str) -> str:
    """The section about a method; of the baselines' section the paragraph."""
    _, *parts = HEADING.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if name in BASELINES:
        return next(p for p in sections["Baselines"].split("\n\n") if f"(`{name}`)" in p)
    return next(body for title, body in sections.items() if title.lower().split(":")[0] == name)


def presets(file: Path) -> Iterator[str]:
    """The values that presets give the method."""
    if file.exists():
        yield "## Values in presets"
        yield "What a preset sets that differs from the defaults ([presets](methods.md#presets))."
        yield f"```toml\n{file.read_text(encoding='utf-8').strip()}\n```"


def numbers(name: str, docs: Path) -> Iterator[str]:
    """The method's rows in the tables of results, each under the section it stands in."""
    rows = [
        (page, title, table)
        for page in RESULTS
        for title, table in _rows(name, (docs / page).read_text(encoding="utf-8"))
    ]
    if rows:
        yield "## Numbers"
        yield "From [Results](results.md), where each table has its command and its conditions."
    for page, title, table in rows:
        edition = " (first edition)" if page != RESULTS[0] else ""
        yield f"[{title}]({page}#{_anchor(title)}){edition}:"
        yield table


def _rows(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Sections and their tables of methods, as far as these are about the method."""
    title, head, before = "", "", ""
    found: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        if line.startswith("|---"):
            head = f"{before}\n{line}"
        if head.startswith("| method |") and _is_about(name, line):
            found.setdefault((title, head), []).append(line)
        before = line
    for (section, top), lines in found.items():
        yield section, "\n".join([top, *lines])


def _is_about(name: str, line: str) -> bool:
    """Whether a row is of the method itself, or of a variant of it: `ewc, frozen`.

    >>> [_is_about("gem", f"| {first} | 1 |") for first in ("gem", "GEM 5", "gem, 5", "gem-x")]
    [True, True, True, False]
    """
    first = line.strip("| ").split(" |")[0].removesuffix(r"\*")
    return line.startswith("|") and bool(re.match(rf"{name}($|[ ,:])", first, re.IGNORECASE))


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def method_pages(root: Path) -> dict[str, str]:
    """Path on the site and text of every method's page."""
    return {f"methods/{name}.md": method_page(info, root) for name, info in METHODS.items()}
