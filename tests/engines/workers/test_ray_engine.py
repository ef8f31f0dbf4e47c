"""The same plan on a real two-node Ray cluster, with one worker killed in the middle of its run."""

import importlib.util
import json
import os
import signal
import socket
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nscl.cli.app import call
from nscl.engines.display.board import NO_LIMIT, Board
from nscl.engines.execute import execute
from nscl.engines.job import Ending, Job
from nscl.engines.workers.ray_engine import ClusterError, RayEngine
from nscl.training.experiment import run
from tests.engines.jobs import job
from tests.runs import nscl, small

ROOT = Path(__file__).parents[3]


def test_without_ray_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert call(["compare", "split-digits-5", "--methods", "finetune", "--engine", "ray"]) == 2
    errors = capsys.readouterr().err
    assert errors == "nscl: --engine ray needs Ray: pip install 'nscl[ray]'\n"


def test_the_extra_brings_the_client_that_ray_addresses_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (needed,) = project["optional-dependencies"]["ray"]
    assert needed.startswith("ray[client]")
    monkeypatch.chdir(tmp_path)
    ray = stand_in()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "grpc", None)
    where = ("--engine", "ray", "--address", "ray://head:10001")
    assert call(["compare", "split-digits-5", "--methods", "finetune", *where]) == 2
    errors = capsys.readouterr().err
    assert errors == (
        "nscl: --address ray://head:10001 needs Ray's client: pip install 'nscl[ray]'\n"
    )


def stand_in(*nodes: dict[str, float]) -> Any:
    """As much of Ray as an engine needs to hand runs over; ``asked`` is what it was asked for."""
    asked: list[dict[str, Any]] = []

    def options(**wanted: Any) -> Any:
        asked.append(wanted)
        return SimpleNamespace(remote=lambda *_: len(asked))

    return SimpleNamespace(
        asked=asked,
        is_initialized=lambda: True,
        remote=lambda **_: lambda _: SimpleNamespace(options=options),
        nodes=lambda: [{"Alive": True, "Resources": resources} for resources in nodes],
    )


def test_a_run_waits_until_its_worker_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", stand_in({"CPU": 1.0}))
    engine, jobs = RayEngine(), [job(tmp_path, seed=s) for s in range(2)]
    for made in jobs:
        made.log.parent.mkdir(exist_ok=True)
        made.log.write_text("of an earlier attempt\n")
        engine.start(made)
    assert (engine.busy, engine.begun()) == (2, [])
    with jobs[1].log.open("a") as log:
        log.write("running on a node\n")
    assert (engine.begun(), engine.begun()) == ([jobs[1]], [])


def test_runs_ask_for_a_gpu_where_they_want_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = stand_in({"CPU": 8.0}, {"CPU": 2.0, "GPU": 1.0})
    monkeypatch.setitem(sys.modules, "ray", ray)
    engine = RayEngine()
    for given in ({"device": "cuda", "threads": 2}, {"device": "cpu", "threads": 8}, {}):
        engine.start(job(tmp_path, **given))
    assert [(a["num_cpus"], a["num_gpus"]) for a in ray.asked] == [(2, 1), (8, 0), (1, 0)]
    with pytest.raises(ClusterError, match="no node with a GPU has more than 2: lower --threads"):
        engine.start(job(tmp_path, device="cuda", threads=4))
    with pytest.raises(ClusterError, match="use --device cuda"):
        engine.start(job(tmp_path, device="cuda:1"))
    monkeypatch.setattr(ray, "nodes", stand_in({"CPU": 8.0}).nodes)
    with pytest.raises(ClusterError, match="no node has one: use --device cpu"):
        engine.start(job(tmp_path, device="cuda"))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def client_port() -> int:
    """Where the cluster listens for ``ray://``; 0 where Ray's client is not installed."""
    return free_port() if importlib.util.find_spec("grpc") else 0


@pytest.fixture(scope="module")
def cluster(client_port: int) -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'nscl[ray]'")
    from ray.cluster_utils import Cluster

    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    head = {"num_cpus": 1, **({"ray_client_server_port": client_port} if client_port else {})}
    made = Cluster(initialize_head=True, head_node_args=head)
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


class Counter(Board):
    """Notes the most runs that were asked to go on at once, and that others waited then."""

    most, waited = 0, 0

    def tick(self) -> None:
        self.most = max(self.most, self.count("running"))
        self.waited = max(self.waited, self.count("waiting"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, of other packages
def test_what_ray_queues_is_not_shown_as_running(cluster: Any, tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed=s) for s in range(5)]
    board = Counter(slots=NO_LIMIT)
    assert execute(jobs, RayEngine(), board).exit_code == 0
    assert 1 <= board.most <= 2  # the nodes have a CPU each
    assert board.waited >= 3
    assert board.at_once <= 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, of other packages
def test_the_command_line_reaches_a_cluster_by_a_ray_address(
    cluster: Any, client_port: int, tmp_path: Path
) -> None:
    if not client_port:
        pytest.skip("Ray's client is not installed: pip install 'nscl[ray]'")
    ray = ("--engine", "ray", "--address", f"ray://127.0.0.1:{client_port}")
    there, here = (compared(tmp_path / name, *where) for name, where in (("a", ray), ("b", ())))
    kinds = [record["kind"] for record in there]
    assert (kinds[0], kinds.count("begin"), kinds.count("end")) == ("plan", 2, 2)
    assert {record["state"] for record in there if record["kind"] == "end"} == {"done"}
    assert there[0]["at_a_time"] is None
    (row,), (truth,) = there[-1]["rows"], here[-1]["rows"]
    assert row["seeds"] == [0, 1]
    assert row["acc"] == truth["acc"]


def compared(folder: Path, *where: str) -> list[dict[str, Any]]:
    """What a comparison of two short runs tells, as a process of its own."""
    folder.mkdir()
    settings = ("--seeds", "2", "--data.first", "2", "--optim.epochs", "1", "--threads", "1")
    what = ("compare", "split-digits-5", "--methods", "finetune", *settings, "--json")
    process = nscl(*what, *where, cwd=folder)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]
