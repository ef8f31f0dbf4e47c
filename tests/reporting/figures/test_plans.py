"""Which figures a section has, and of which series spectra are drawn."""

import subprocess
import sys
from pathlib import Path

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures import not_drawn, plans
from tests.reporting.making import make_run


def test_spectra_are_drawn_of_every_method_first(ablated: Section) -> None:
    names = [plan.name for plan in plans(ablated, set())]
    spectral = [name for name in names if name.startswith("singular-values")]
    assert len(spectral) == 6
    assert spectral[-1] == "singular-values-6-connector"


def test_spectra_that_are_not_drawn_are_reported(tmp_path: Path) -> None:
    for i in range(8):
        make_run(tmp_path, f"method-{i}", tasks=1, layers={"one": 4})
    (section,) = sections(gather([tmp_path]).runs)
    (found,) = not_drawn(section, set())
    assert found.name == "singular-values of 2 more series"
    assert [series.name for series in not_drawn(section, {"spectra of method-0"})] == [
        "singular-values of 1 more series"
    ]


def test_what_is_missing_has_no_plan_and_a_plan_needs_no_matplotlib(section: Section) -> None:
    everything = {plan.name for plan in plans(section, set())}
    left = {plan.name for plan in plans(section, {"acc-bwt", "sweep"})}
    assert everything - left == {"acc-bwt", "sweep-adam-nscl-a"}
    code = "import sys, nscl.reporting.figures.plans; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
