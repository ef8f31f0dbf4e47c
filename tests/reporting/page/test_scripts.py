"""Vega's scripts are bundled once and kept in the user's cache."""

from pathlib import Path

import pytest

from nscl.reporting.page import scripts

KEYS = [
    "acc", "plane", "task", "times", "sweep-acc-0", "sweep-bwt-0", "losses",
    "matrix", "share", "free", "spectrum",
]  # fmt: skip


@pytest.fixture
def bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache, and a list of what was bundled."""
    import vl_convert

    made: list[str] = []

    def bundle(snippet: str) -> str:
        made.append(snippet)
        return "vega</script>"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    monkeypatch.setattr(scripts, "_cached", lambda: tmp_path / "cache" / "vega.js")
    return made


def test_the_bundle_is_made_once(bundles: list[str]) -> None:
    assert scripts._vega() == scripts._vega() == "vega</script>"
    assert len(bundles) == 1
    assert "</script" not in scripts._closed(scripts._vega())


def test_a_cache_that_cannot_be_written_is_not_needed(
    bundles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(scripts, "_cached", lambda: tmp_path / "file" / "vega.js")
    assert scripts._vega() == scripts._vega()
    assert len(bundles) == 2
