"""The package's names are imported when they are first used."""

import pytest

from nscl import data


@pytest.mark.parametrize("name", data.__all__)
def test_every_public_name_is_found(name: str) -> None:
    assert getattr(data, name) is not None
