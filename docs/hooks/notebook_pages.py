"""One page per notebook: its cells as Markdown, and the file itself to download.

Notebooks are committed without outputs, and nothing is executed while the site is built.
"""

import json
from pathlib import Path
from typing import Any

FOLDER = "notebooks"


def notebook_files(root: Path) -> dict[str, str]:
    """Path on the site and text of every notebook's page, and of the notebook beside it."""
    notebooks = sorted((root / FOLDER).glob("*.ipynb"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in notebooks}
    pages = {page_name(name): notebook_page(json.loads(text)) for name, text in texts.items()}
    return {f"{FOLDER}/{name}": text for name, text in {**pages, **texts}.items()}


def page_name(notebook: str) -> str:
    """The page of a notebook.

    >>> page_name("first.ipynb")
    'first.md'
    """
    return notebook.removesuffix(".ipynb") + ".md"


def notebook_page(notebook: dict[str, Any]) -> str:
    """The cells of a notebook, one after the other."""
    return "\n\n".join(cell(part) for part in notebook["cells"]) + "\n"


def cell(part: dict[str, Any]) -> str:
    r"""A cell as Markdown.

    >>> print(cell({"cell_type": "code", "source": ["!ls a\n", "!ls b"]}))
    ```console
    $ ls a
    $ ls b
    ```
    """
    source = "".join(part["source"])
    if part["cell_type"] == "markdown":
        return source
    first, _, rest = source.partition("\n")
    if first.startswith("%%writefile "):
        return _fence(f'python title="{first.removeprefix("%%writefile ")}"', rest)
    lines = source.splitlines()
    if all(line.startswith("!") for line in lines):
        return _fence("console", "\n".join(f"$ {line.removeprefix('!')}" for line in lines))
    return _fence("python", source)


def with_download(page: str, notebook: str) -> str:
    r"""A page with a link to the notebook itself below its title.

    >>> with_download("# A\n\nText.", "a.ipynb")
    '# A\n\n[Download this notebook](a.ipynb) to run it.\n\nText.'
    """
    title, _, text = page.partition("\n\n")
    return f"{title}\n\n[Download this notebook]({notebook}) to run it.\n\n{text}"


def _fence(language: str, code: str) -> str:
    return f"```{language}\n{code.strip()}\n```"
