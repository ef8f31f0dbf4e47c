"""The package's names are imported when they are first used."""

import pytest

from nscl import models


def test_every_public_name_is_found_and_no_other() -> None:
    assert all(getattr(models, name) is not None for name in models.__all__)
    assert set(models.__all__) <= set(dir(models))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = models.nothing  # type: ignore[attr-defined]
