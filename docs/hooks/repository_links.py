"""Where a link of a document leads on the site: to a page of it, or to the repository.

Documents link to each other as files, so that their links also work in the repository. On the site
the documents of the repository's root are pages like the others, and its other files are not there.
"""

import posixpath
import re

#: Documents outside of ``docs/`` that are pages of the site.
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}

CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
ELSEWHERE = ("http:", "https:", "mailto:")


def relink(markdown: str, *, document: str, page: str, repository: str | None) -> str:
    """The text of a document with links that hold on the page it becomes.

    ``document`` is its path in the repository, ``page`` the one below ``docs/`` on the site.
    ``repository`` is the address of the repository; links to its files are plain text without it.

    >>> text = "[the code](../src/nscl/), [changes](../CHANGELOG.md#new)"
    >>> relink(text, document="docs/a.md", page="a.md", repository=None)
    'the code, [changes](changelog.md#new)'
    """

    def moved(link: re.Match[str]) -> str:
        text, target = link.groups()
        if target.startswith(ELSEWHERE):
            return link.group()
        path, mark, anchor = target.partition("#")
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
        linked = linked if path else document
        to = page_of(linked)
        if to is None:
            return f"[{text}]({repository.rstrip('/')}/blob/main/{linked})" if repository else text
        return f"[{text}]({posixpath.relpath(to, posixpath.dirname(page) or '.')}{mark}{anchor})"

    parts = CODE.split(markdown)
    return "".join(part if CODE.fullmatch(part) else LINK.sub(moved, part) for part in parts)


def page_of(path: str) -> str | None:
    """The page of a file of the repository, if it has one."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path.startswith("notebooks/") and path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None
