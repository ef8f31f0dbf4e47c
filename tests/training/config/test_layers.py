"""Layers of settings: the stronger wins, None leaves the weaker, files are named when broken."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.training.config.layers import merge, read_toml
from nscl.training.config.schema import ConfigError

settings = st.dictionaries(st.sampled_from("abc"), st.integers() | st.none(), max_size=3)


@given(base=settings, over=settings)
def test_merging_keeps_what_is_not_set(base: dict[str, int], over: dict[str, int]) -> None:
    merged = merge({"x": base}, {"x": over})["x"]
    for key in {*base, *over}:
        value = over.get(key)
        assert merged.get(key) == (value if value is not None else base.get(key))


def test_none_is_a_value_in_a_methods_options() -> None:
    assert merge({"options": {"samples": 5}}, {"options": {"samples": None}}) == {
        "options": {"samples": None}
    }


def test_a_tables_bare_value_is_refused_below_another_layer() -> None:
    """It would be lost without a word, or a method's options could not be joined with it."""
    for name in ("options", "data"):
        with pytest.raises(ConfigError, match=f"{name!r} is a table of settings"):
            merge({name: 3}, {name: {"first": 2}})


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("lr = = 3")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        read_toml(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="is a folder: name the TOML file"):
        read_toml(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot read .*below: Not a directory"):
        read_toml(tmp_path / "bad.toml" / "below")
