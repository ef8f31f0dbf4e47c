"""The table of the laboratory."""

from pathlib import Path

import pytest

from nscl.reporting import Table, gather, make_table, sections


@pytest.fixture
def table(lab: Path) -> Table:
    (section,) = sections(gather([lab]).runs)
    return make_table(section)
