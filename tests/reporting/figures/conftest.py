"""Crowded sections, drawn once for all tests of figures."""

import pytest

from nscl.reporting import Section, gather, sections
from tests.reporting.making import make_run


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Section:
    root = tmp_path_factory.mktemp("crowded")
    layers = {f"backbone.stage{i}.0.shortcut.0": 20 for i in range(9)} | {"backbone.conv1": 27}
    for i in range(14):
        make_run(root, f"method-{i}-$of^mine_", tasks=13, layers=layers if i == 0 else None)
    (section,) = sections(gather([root]).runs)
    return section


@pytest.fixture(scope="session")
def ablated(tmp_path_factory: pytest.TempPathFactory) -> Section:
    """26 rows with long names, as ablations have them; one of another method, one unfinished."""
    root = tmp_path_factory.mktemp("ablated")
    layers = {"backbone.one": 9}
    for i in range(24):
        label = f"variant {i}, displacement since the last task and a ridge of 10 to the {i}"
        make_run(root, "adam-nscl", layers=layers, label=label, switch=i, plain=False)
    make_run(root, "connector", layers=layers)
    make_run(root, "adam-nscl", finished=False, tasks=3, switch=24, plain=False)
    (section,) = sections(gather([root]).runs)
    return section


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Section:
    root = tmp_path_factory.mktemp("many")
    for i in range(12):
        method = f"method-{'x' * i}"
        make_run(root, method, stores="data" if i % 3 == 0 else "nothing", tracked=2)
    (section,) = sections(gather([root]).runs)
    return section
