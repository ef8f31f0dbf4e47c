"""Docstrings as Markdown: doctests and literal blocks become blocks of code."""

import re
import textwrap

LITERAL = re.compile(r"::\n\n((?:    .*\n?|\n)+)")
DOCTEST = re.compile(r"^>>> .*\n?(?:^(?!\n).+\n?)*", re.MULTILINE)
FLAG = re.compile(r" *# doctest: .*$", re.MULTILINE)


def fenced(text: str) -> str:
    """A docstring in Markdown, which would take a doctest for a quotation."""
    text = LITERAL.sub(lambda m: f":\n\n{_block('text', textwrap.dedent(m.group(1)))}\n", text)
    return DOCTEST.sub(lambda m: _block("pycon", m.group()), text)


def _block(language: str, code: str) -> str:
    return f"```{language}\n{FLAG.sub('', code).strip()}\n```\n"
