"""Nothing in a figure is cut off or too small to read, however long names and streams are."""

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures import styled
from nscl.reporting.figures.curves import acc_after_task, task_accuracy
from nscl.reporting.figures.matrices import layer_map
from nscl.reporting.figures.spectrum import singular_values
from nscl.reporting.figures.style import laid_out
from tests.reporting.making import make_run


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Section:
    root = tmp_path_factory.mktemp("crowded")
    layers = {f"backbone.stage{i}.0.shortcut.0": 20 for i in range(9)} | {"backbone.conv1": 27}
    for i in range(14):
        make_run(root, f"method-{i}-$of^mine_", tasks=13, layers=layers if i == 0 else None)
    (section,) = sections(gather([root]).runs)
    return section


@pytest.mark.parametrize(
    "draw",
    [
        acc_after_task,
        task_accuracy,
        lambda section: layer_map(section.series[0], "free"),
        lambda section: singular_values(section.series[0]),
    ],
)
def test_all_texts_are_inside_and_readable(
    crowded: Section, draw: Callable[[Section], Figure], tmp_path: Path
) -> None:
    with styled():
        figure = laid_out(draw(crowded))
        bounds = figure.get_tightbbox()
        texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
        figure.savefig(tmp_path / "figure.png")
    width, height = figure.get_size_inches()
    assert bounds.x0 > -0.01
    assert bounds.y0 > -0.01
    assert bounds.x1 < width + 0.01
    assert bounds.y1 < height + 0.01
    assert min(t.get_fontsize() for t in texts) >= 7
    assert width <= 7.05  # fits on a page


def test_settings_of_others_are_left_alone() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with styled():
        assert mpl.rcParams["font.size"] == 8
    assert dict(mpl.rcParams) == before
