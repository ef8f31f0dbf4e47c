"""The charts of two runs side by side: what the page's script fills with the runs it is asked for.

The two runs are called ``@1`` and ``@2`` here; the script puts their names in these places.
"""

from typing import Any

from nscl.reporting.page.charts.lines import (
    line_chart,
    open_task_axis,
    task_axis,
    value_axis,
    value_text,
)
from nscl.reporting.page.charts.maps import accuracy_maps
from nscl.reporting.page.charts.theme import Styles
from nscl.reporting.plot_styles import first_styles
from nscl.reporting.series import Section

NAMES = ["@1", "@2"]
_AT = "'task ' + ceil(datum.x) + ', ' + format(datum.x - ceil(datum.x) + 1, '.0%') + ' of it'"


def pair_charts(section: Section) -> dict[str, Any]:
    """Specifications without data: ACC, training loss, and the two accuracy matrices."""
    styles = Styles(NAMES, first_styles(2), [False, False])
    acc = line_chart(
        [],
        styles,
        x=task_axis(section.tasks, "after task"),
        y=value_axis("ACC (%)"),
        text=value_text(" %"),
        heading="'after task ' + datum.x",
    )
    loss = line_chart(
        [],
        styles,
        x=open_task_axis(section.tasks),
        y=value_axis("training loss", log=True),
        text="format(datum.mean, '.3~g')",
        heading=_AT,
    )
    empty: dict[str, Any] = {"row": [], "column": [], "value": [], "text": []}
    maps = accuracy_maps([{"series": name, **empty} for name in NAMES], section)
    return {"acc": acc, "loss": loss, "matrix": maps}
