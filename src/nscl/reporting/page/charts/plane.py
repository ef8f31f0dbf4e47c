"""The plane of ACC and BWT: one marker per series, with bars of one deviation and its name.

The page's script places the names beside the markers so that none overlaps (Vega's transform
``label``, which Vega-Lite does not have); a name without room is left to the pointer.
"""

import textwrap
from collections.abc import Iterator
from typing import Any

import altair as alt

from nscl.reporting.page.charts.lines import nothing_shown
from nscl.reporting.page.charts.theme import (
    HEIGHT,
    Card,
    chart_of_rows,
    hidden_series,
    specification,
    styles_of,
    visible,
    with_field,
)
from nscl.reporting.series import Section, Series

ACC, BWT = "ACC (%)", "BWT (points)"
LONGEST = 28  # characters of a direct label; the whole name is in the legend and at the pointer


def plane_card(section: Section) -> Iterator[Card]:
    """All series with a finished run: up is accurate, right forgets nothing."""
    points = [row for series in section.shown if (row := _row(series))]
    if not points:
        return
    styles = styles_of(section)
    x = alt.X(
        "bwt:Q", title=BWT, scale=alt.Scale(zero=True, padding=44), axis=alt.Axis(tickCount=6)
    )
    y = alt.Y(
        "acc:Q", title=ACC, scale=alt.Scale(zero=False, padding=14), axis=alt.Axis(tickCount=5)
    )
    dots = chart_of_rows().transform_filter(visible())
    names = dots.mark_text(fontSize=11.5, color="var(--ink)", tooltip=None)
    bars = dots.mark_rule(strokeWidth=1, tooltip=None).encode(color=styles.colour)
    chart = alt.layer(
        alt.Chart(alt.Data(values=[{"bwt": 0}]))
        .mark_rule(color="var(--quiet)", strokeWidth=0.7)
        .encode(x=x),
        bars.properties(name="across").encode(
            x=with_field(x, "bwt_low"), x2=alt.X2("bwt_high:Q"), y=y
        ),
        bars.properties(name="along").encode(
            y=with_field(y, "acc_low"), y2=alt.Y2("acc_high:Q"), x=x
        ),
        dots.properties(name="dots").mark_point(size=110, strokeWidth=1.6, opacity=1).encode(
            x=x, y=y, color=styles.colour, fill=styles.fill, shape=styles.shape,
            description=alt.Description("series:N"),
            tooltip=[
                alt.Tooltip("series:N", title="title"),
                alt.Tooltip("acc_text:N", title=ACC),
                alt.Tooltip("bwt_text:N", title=BWT),
            ],
        ),
        names.properties(name="names").encode(x=x, y=y, text=alt.Text("name:N")),
        nothing_shown(len(styles.labels)),
        width="container",
        height=HEIGHT,
    )  # fmt: skip
    yield Card("plane", "ACC against BWT", specification(chart, points, [hidden_series()]))


def _row(series: Series) -> dict[str, Any] | None:
    name = textwrap.shorten(series.marked, LONGEST, placeholder="…")
    found: dict[str, Any] = {"series": series.marked, "name": name or series.marked[:LONGEST]}
    for name in ("acc", "bwt"):
        value = series.figure(name)
        if value is None:
            return None
        mean, std = round(value.mean, 2), round(value.std or 0.0, 2)
        found[name] = mean
        found[f"{name}_low"], found[f"{name}_high"] = mean - std, mean + std
        text = f"{mean:.2f}" + (f" ± {std:.2f}" if value.std is not None else "")
        found[f"{name}_text"] = text.replace("-", "−")
    return found
