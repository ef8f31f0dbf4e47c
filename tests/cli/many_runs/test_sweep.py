"""``nscl sweep``: a plan with a grid, and what cannot be varied."""

from pathlib import Path

import pytest

from nscl.cli.app import call
from nscl.results import find_runs
from tests.cli.calling import check_refused


def test_a_plan_with_a_sweep(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "plan.toml").write_text(
        'description = "two strengths"\n'
        'benchmark = "split-digits-5"\nmethods = "adam-nscl"\nseeds = 1\n'
        "[settings]\ndata.first = 1\noptim.epochs = 1\n"
        "[sweep]\nmethod.a = [10, 1000]\n"
        '[expected."adam-nscl a=10"]\nacc = 90\n'
    )
    assert call(["sweep", "--plan", "plan.toml", "--jobs", "2", "--method.norms", "freeze"]) == 0
    output = capfd.readouterr().out
    assert output.startswith("two strengths\n")
    assert "adam-nscl a=1000" in output
    assert "ACC 90" in output
    options = [found.config()["options"] for found in find_runs([here / "runs"]).runs]
    assert sorted(o["a"] for o in options) == [10, 1000]
    assert {o["norms"] for o in options} == {"freeze"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("split-digits-5",), "nothing to vary: give --set"),
        (("split-digits-5", "--set", "method.b=1"), "there is no option 'method.b'"),
        (("split-digits-5", "--set", "optim.lrr=1"), "did you mean 'optim.lr'?"),
        (("split-digits-5", "--set", "seed=1,2"), "use --seeds"),
    ],
)
def test_what_the_user_can_fix_is_one_line_and_exit_code_2(
    args: tuple[str, ...], message: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_refused(("sweep", *args), message, here, capfd)
