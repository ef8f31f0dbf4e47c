"""Losses of old tasks: one scale, plain numbers, and losses of zero."""

import json
from pathlib import Path

from nscl.reporting import gather, sections
from nscl.reporting.figures.charts.losses import old_losses
from nscl.reporting.figures.style import laid_out, styled
from tests.reporting.making import make_run


def test_losses_of_old_tasks_have_one_scale_and_plain_numbers(tmp_path: Path) -> None:
    make_run(tmp_path, "ewc", tracked=2)
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        figure = old_losses(section)
        figure.canvas.draw()
    first, second = figure.axes
    assert first.get_ylim() == second.get_ylim()
    low, high = first.get_ylim()
    found = [text.get_text() for text in first.get_yticklabels() if text.get_text()]
    shown = [text for text in found if low <= float(text) <= high]  # no 2 × 10⁰ among them
    assert len(shown) >= 2


def test_losses_of_exactly_zero_are_drawn_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, "ewc", tracked=2)
    lines = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    for record in lines:
        if "old_losses" in record:
            record["old_losses"] = [0.0] * len(record["old_losses"])
    run.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in lines))
    (section,) = sections(gather([tmp_path]).runs)
    with styled():
        assert laid_out(old_losses(section)).axes[0].get_title(loc="left") == "task 1"
