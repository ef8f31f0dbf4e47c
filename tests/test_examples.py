"""Every example runs as a real process and reaches the numbers it promises."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
# After DDP or FSDP2 the threads of gloo outlive destroy_process_group (torch 2.13), and on a busy
# machine one of them now and then ends a rank that has printed everything: seen in 2 of 19 runs.
ABORTED_AT_EXIT = "terminate called without an active exception"
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def start(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run an example with this interpreter; a warning of ours is an error."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONWARNINGS": "error::UserWarning",
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        timeout=600,
        check=False,
    )


def run(*command: str | Path) -> str:
    done = start(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(NUMBER, text)]


def demo_rows(output: str) -> dict[str, list[float]]:
    """Rows of the demo's table by name: task 1, after task 2, forgotten, task 2, mean."""
    rows = {}
    for line in output.splitlines():
        if line.startswith("│"):
            name, *cells = (cell.strip() for cell in line.strip("│").split("│"))
            rows[name] = [float(cell) for cell in cells]
    return rows


def check_demo(seed: int) -> None:
    rows = demo_rows(run(EXAMPLES / "two_tasks.py", str(seed)))
    assert list(rows) == ["Adam", "Adam-NSCL, the paper's", "Memory", "Memory + recall"]
    plain, paper, memory, recall = rows.values()
    assert plain[0] == paper[0] == memory[0] == recall[0] > 95  # until task 2 all are the same
    assert plain[2] > 5
    for held in (paper, memory, recall):
        assert held[2] < 3
    for learned in (memory, recall):
        assert learned[3] > 94
        assert learned[4] > max(plain[4], paper[4]) + 2


def test_the_demo() -> None:
    assert len((EXAMPLES / "two_tasks.py").read_text().splitlines()) < 66
    check_demo(seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_demo_does_not_depend_on_luck(seed: int) -> None:
    check_demo(seed)


def test_own_layer() -> None:
    output = run(EXAMPLES / "own_layer.py")
    assert "no null space is known for '2.weight' (CosineLinear)" in output
    first, last, moved = numbers(output.splitlines()[-1])
    assert last < 0.2 * first
    assert moved < 1e-4


def test_ship_memory() -> None:
    output = run(EXAMPLES / "ship_memory.py")
    trained, kept, predicted = output.splitlines()
    before = float(re.findall(rf"({NUMBER}) %", trained)[0])
    old, new = (float(found) for found in re.findall(rf"({NUMBER}) %", kept))
    assert before > 95
    assert old > before - 2
    assert new > 90
    assert 0 < float(re.findall(rf"risen by ({NUMBER}),", predicted)[0]) < 0.2


def test_distributed() -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = start(*launcher, EXAMPLES / "distributed.py")
    assert done.returncode == 0 or ABORTED_AT_EXIT in done.stderr, done.stderr
    lines = sorted(done.stdout.splitlines())
    starts = [line.partition(":")[0] for line in lines]
    assert starts == ["DDP, rank 0", "DDP, rank 1", "FSDP2, rank 0", "FSDP2, rank 1"]
    printed = [line.partition(":")[2] for line in lines]
    assert printed[0] == printed[1]
    assert printed[2] == printed[3]
    for line in printed:
        *free, moved, drift = numbers(line)
        assert free == [17.0, 49.0]  # the old rows of both ranks, 16, out of 33 and 65 directions
        assert moved < 1e-5
        assert abs(drift) < 1e-6


@pytest.mark.slow
def test_the_readme_shows_what_the_picture_measures(tmp_path: Path) -> None:
    """Numbers may differ in the last digits between machines, but not in what they say."""
    output = run(EXAMPLES / "picture.py", tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = ("| Adam |", "| Adam-NSCL, ", "| Memory |", "| Memory + ")
    measured = [line for line in output.splitlines() if line.startswith(rows)]
    written = [line for line in readme.splitlines() if line.startswith(rows)]
    assert len(measured) == len(written) == 4
    for here, there in zip(measured, written, strict=True):
        assert here.split("|")[1] == there.split("|")[1]
        gaps = [abs(a - b) for a, b in zip(numbers(here), numbers(there), strict=True)]
        assert mean(gaps) < 2
    assert (tmp_path / "two_tasks.png").stat().st_size > 10_000
    assert (tmp_path / "two_tasks.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.slow
def test_where_running_statistics_should_be_frozen(tmp_path: Path) -> None:
    """Another kind of pictures moves them far, and frozen ones then have the better mean."""
    path = tmp_path / "outcomes.json"
    run(EXAMPLES / "running_statistics.py", "--seeds", "1", "--json", path)
    found = json.loads(path.read_text(encoding="utf-8"))
    update, freeze = ([found[mode][wash][0] for wash in ("0", "0.8")] for mode in found)
    assert update[0]["shift"] < update[1]["shift"]
    assert freeze[1]["shift"] == 0
    gains = [after["old"] + after["new"] for after in (update[1], freeze[1])]
    assert gains[0] + 4 < gains[1]
