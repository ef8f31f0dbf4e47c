"""The package's names are imported when they are first used."""

import pytest

from nscl import data


def test_every_public_name_is_found_and_no_other() -> None:
    assert all(getattr(data, name) is not None for name in data.__all__)
    assert dir(data) == sorted(data.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = data.nothing  # type: ignore[attr-defined]
