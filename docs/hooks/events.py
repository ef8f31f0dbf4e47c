"""What MkDocs calls while it builds the site.

Pages that are no file of ``docs/`` are added, links are adapted, and the result is checked.
"""

from pathlib import Path

from built_site import faults
from markdown import Extension, Markdown
from method_pages import method_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from notebook_pages import FOLDER, notebook_files, with_download
from repository_links import ROOT_PAGES, relink

ROOT = Path(__file__).parents[2]


class NarrowLists(Extension):
    """Lists within lists begin after two spaces, as in the repository's own view of a page."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  (Markdown's name)
        """Called by Markdown; its parsers read the width when they are made."""
        md.tab_length = 2
        md.build_parser()


def on_config(config: MkDocsConfig) -> None:
    """Before anything is read."""
    # First: other extensions add to the parsers that it makes.
    config.markdown_extensions.insert(0, NarrowLists())
    # Of an address on GitHub the theme would ask api.github.com for its stars, on every page.
    config.extra["repository"], config.repo_url = config.repo_url, None


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are not in ``docs/``."""
    for document, path in ROOT_PAGES.items():
        if files.get_file_from_path(path) is None:
            text = (ROOT / document).read_text(encoding="utf-8")
            files.append(File.generated(config, path, content=text))
    for path, text in {**method_pages(ROOT), **notebook_files(ROOT)}.items():
        files.append(File.generated(config, path, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead where the site has what they mean."""
    path = page.file.src_uri
    repository = config.extra["repository"] or None
    text = relink(markdown, document=document_of(path), page=path, repository=repository)
    if path.startswith(f"{FOLDER}/"):
        return with_download(text, Path(path).with_suffix(".ipynb").name)
    return text


def document_of(page: str) -> str:
    """The document whose links a page has."""
    if page.startswith("methods/"):
        return "docs/methods.md"
    if page.startswith(f"{FOLDER}/"):
        return page.removesuffix(".md") + ".ipynb"
    return {path: document for document, path in ROOT_PAGES.items() if path != "index.md"}.get(
        page, f"docs/{page}"
    )


def on_post_build(config: MkDocsConfig) -> None:
    """Look at the pages as a reader's browser will."""
    found = faults(Path(config.site_dir))
    if found:
        raise PluginError("the built site has faults:\n" + "\n".join(found))
