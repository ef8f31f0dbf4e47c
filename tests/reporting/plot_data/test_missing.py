"""Each figure without data is listed with its reason."""

from pathlib import Path

from nscl.reporting import Section, gather, sections
from nscl.reporting.plot_data.missing import left_out
from tests.reporting.making import make_run


def test_every_missing_figure_has_its_reason(tmp_path: Path, section: Section) -> None:
    assert left_out(section) == []
    run = make_run(tmp_path, tasks=1)
    (alone,) = sections(gather([run.result_path]).runs)
    found = {figure.name: figure.reason for figure in left_out(alone)}
    assert "2 finished tasks" in found["acc-after-task"]
    assert "metrics.jsonl" in found["step-time"]
    assert "metrics.jsonl" in found["training-loss"]
    assert "--track-old-losses 3" in found["old-losses"]
    assert "spectra.npz" in found["singular-values"]
    assert "accuracy-matrix" not in found
    assert not any("finetune" in reason for reason in found.values())  # it is so of all series
