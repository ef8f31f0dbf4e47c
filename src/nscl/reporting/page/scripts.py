"""The page's scripts: Vega from vl-convert, which draws the charts, and a few of our own.

Ours sort and filter tables (``table.js``), remember choices (``choices.js``), draw charts
(``charts.js``), switch series (``legend.js``), set two runs side by side (``pair.js``), and switch
the theme and reload a live page (``page.js``).
"""

import base64
import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from nscl.results import WriteError, write_bytes
from nscl.user_cache import cache_dir

OWN = ("choices.js", "table.js", "charts.js", "legend.js", "pair.js", "page.js")
_EXPORT = "window.vegaEmbed = vegaEmbed;"


@cache
def scripts() -> tuple[str, str]:
    """Vega with vega-embed, and the page's own script."""
    return _closed(_vega()), _closed("\n".join(map(template, OWN)))


def template(name: str) -> str:
    """A file of the folder ``templates``."""
    return (files("nscl.reporting.page") / "templates" / name).read_text("utf-8")


def policy(*, live: bool) -> str:
    """The content policy: no network, and only these scripts, known by their hashes."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts())
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _closed(script: str) -> str:
    """One function around the script: nothing in it can be reached or replaced from outside."""
    return '(() => {\n"use strict";\n' + script.replace("</script", "<\\/script") + "\n})();\n"


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _vega() -> str:
    """The bundle of Vega's scripts. Making it takes seconds, so it is kept in the user's cache."""
    place = _cached()
    try:
        return place.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        import vl_convert

        bundle: str = vl_convert.javascript_bundle(_EXPORT)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, bundle.encode())
    except (OSError, WriteError):
        pass  # a home folder that cannot be written costs time, not the report
    return bundle


def _cached() -> Path:
    return cache_dir() / f"vega-{version('vl-convert-python')}.js"
