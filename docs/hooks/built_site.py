"""The built pages as a browser sees them.

Every link must lead somewhere, and nothing may be fetched from another host.
"""

import posixpath
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser loads by itself, and the attribute that says from where.
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
NOT_LOADED = ("canonical", "prev", "next", "alternate")


@dataclass
class Page(HTMLParser):
    """A page's links, anchors, and what a browser loads with it."""

    links: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """The parser's own state."""
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for every tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in LOADED and values.get("rel") not in NOT_LOADED and LOADED[tag] in values:
            self.loads.add(values[LOADED[tag]])


def faults(site: Path) -> list[str]:
    """What is wrong with a built site, one line each."""
    pages = {path.relative_to(site).as_posix(): read(path) for path in site.rglob("*.html")}
    pages.pop("404.html", None)  # its links are absolute: it is shown at every address
    return [
        f"  {name}: {fault}"
        for name, page in sorted(pages.items())
        for fault in [
            *(f"loads {url}" for url in sorted(page.loads) if urlsplit(url).netloc),
            *(f"no {url}" for url in sorted(page.links | page.loads) if not leads(url, name, site,
                                                                                  pages)),
        ]
    ]  # fmt: skip


def read(path: Path) -> Page:
    """Parse a page."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def leads(url: str, name: str, site: Path, pages: dict[str, Page]) -> bool:
    """Whether a link of a page has a file, and an anchor, to lead to; other hosts are not asked."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return True
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
    path = path if parts.path else name
    if (site / path).is_dir():
        path = posixpath.normpath(posixpath.join(path, "index.html"))
    anchor = unquote(parts.fragment)
    if path in pages:
        return not anchor or anchor == "__top" or anchor in pages[path].anchors
    return (site / path).exists()
