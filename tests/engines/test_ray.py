"""The same plan on a real two-node Ray cluster, with one worker killed in the middle of its run."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nscl.cli.app import call
from nscl.engines.board import Board
from nscl.engines.execute import execute
from nscl.engines.job import Ending, Job
from nscl.engines.ray_engine import ClusterError, RayEngine
from nscl.training.experiment import run
from tests.engines.jobs import job
from tests.runs import small

ROOT = Path(__file__).parents[2]


def test_without_ray_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert call(["compare", "split-digits-5", "--methods", "finetune", "--engine", "ray"]) == 2
    errors = capsys.readouterr().err
    assert errors == "nscl: --engine ray needs Ray: pip install 'nscl[ray]'\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'nscl[ray]'")
    from ray.cluster_utils import Cluster

    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()
    os.environ.clear()
    os.environ.update(before)


class Killer(Board):
    """Kills the worker of one run, once, after its first epochs; stops the plan if asked to."""

    def __init__(self, victim: Job, *, how: str) -> None:
        super().__init__()
        self.victim, self.how, self.killed = victim, how, 0
        self.endings: list[Ending] = []

    def tick(self) -> None:
        directory = self.victim.directory
        if self.killed or not self.victim.is_begun or not directory.lock_path.exists():
            return
        text = directory.lock_path.read_text()
        if text and directory.metrics_path.read_bytes().count(b"\n") >= 2:
            self.killed = json.loads(text)["pid"]
            if self.how == "worker":
                os.kill(self.killed, signal.SIGKILL)
            else:
                os.kill(os.getpid(), signal.SIGINT)

    def end(self, ending: Ending) -> None:
        super().end(ending)
        self.endings.append(ending)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, of other packages
def test_a_lost_worker_continues_and_results_are_those_of_the_local_engine(
    cluster: Any, tmp_path: Path
) -> None:
    longer = {"optim": {"epochs": 30}, "data": {"first": 2}}
    jobs = [
        Job(small("adam-nscl", tmp_path, **longer), "adam-nscl"),
        job(tmp_path, "finetune", **longer),
    ]
    truth = [run(small(j.config.method, tmp_path / "here", **longer)) for j in jobs]
    board = Killer(jobs[0], how="stop")
    outcome = execute(jobs, RayEngine(), board)
    assert board.killed
    assert outcome.exit_code == 130
    assert {ending.state for ending in outcome.endings} <= {"stopped", "done"}
    assert not jobs[0].directory.is_finished
    until = time.monotonic() + 30
    while jobs[0].directory.lock_path.exists() and time.monotonic() < until:
        time.sleep(0.1)
    board = Killer(jobs[0], how="worker")
    outcome = execute(jobs, RayEngine(), board)
    assert board.killed
    assert outcome.exit_code == 0, [ending.error for ending in outcome.endings]
    for made, true in zip(jobs, truth, strict=True):
        assert made.directory.result().accuracy == true.accuracy
    text = jobs[0].log.read_text()
    assert text.count("resuming") >= 1  # from the checkpoint, not from the start
    failing = job(tmp_path, "broken", optim={"lr": 1e30})
    (ending,) = execute([failing], RayEngine(), Board()).endings
    assert ending.state == "failed"
    assert "lower the learning rate" in ending.error
    with pytest.raises(ClusterError, match="lower --threads"):
        RayEngine().start(job(tmp_path, "wide", threads=64))
