"""The package's names are imported when they are first used."""

import pytest

from nscl import models


@pytest.mark.parametrize("name", models.__all__)
def test_every_public_name_is_found(name):
    assert getattr(models, name) is not None
