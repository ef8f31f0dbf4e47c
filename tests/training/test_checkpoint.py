"""Full disks, damaged checkpoints and logs: an error of one line, and nothing saved is lost."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nscl.results import FormatError, RunDirectory, WriteError
from nscl.training.checkpoint import Checkpoint, Place
from nscl.training.config.build import build_config
from nscl.training.experiment import run
from tests.runs import nscl, small

RUN = ("run", "split-digits-5", "--data.first", "2", "--optim.epochs", "4", "--optim.batch-size",
       "8", "--threads", "1")  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=240)
    return process.returncode, errors


def content(folder: Path) -> tuple[Any, list[dict[str, Any]]]:
    """Accuracies and log of the one run in a folder, without what clocks say."""
    (run,) = (folder / "runs").iterdir()
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        record.pop("seconds")
    return json.loads((run / "result.json").read_text())["accuracy"], records


def one_line(errors: str, *parts: str) -> None:
    assert errors.startswith("nscl: cannot write "), errors
    assert errors.count("\n") == 1, errors
    for part in parts:
        assert part in errors


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith(".nscl-tmp-")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    optim = {"epochs": 4, "batch_size": 8}
    given = {"data": {"first": 2}, "optim": optim, "threads": 1, "out": folder / "runs"}
    run(build_config("split-digits-5", given))  # what RUN says
    return content(folder)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux's prlimit")
@pytest.mark.parametrize("most", [20_000, pytest.param(10, marks=pytest.mark.slow)])
def test_files_that_cannot_grow_stop_the_run_and_it_resumes(
    most: int, whole: Any, tmp_path: Path
) -> None:
    """The limit comes while the run goes on, as a quota would; the second holds for the log too."""
    process = nscl(*RUN, cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 2" in line:
            break
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    code, errors = finish(process)
    assert code == 2
    one_line(errors, "File too large", "nothing half-written is left")
    (run,) = (tmp_path / "runs").iterdir()
    assert leftovers(tmp_path) == []
    place, _, _ = Checkpoint(run / "checkpoint", run.name).load()
    assert (place.task, place.epoch >= 1) == (0, True)
    code, errors = finish(nscl("resume", f"runs/{run.name}", cwd=tmp_path))
    assert code == 0, errors
    assert content(tmp_path) == whole


def private_mounts() -> bool:
    """Whether this user may mount a file system that nobody else sees."""
    if shutil.which("unshare") is None:
        return False
    try:
        command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /tmp"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


# A disk that fills up while the run goes on; then it is made larger, and the run resumed.
SCRIPT = """
set -e
mkdir disk && mount -t tmpfs -o size=1m none disk
head -c $1 /dev/zero > disk/others
set +e
"$2" -m nscl $3 --out disk/runs > out 2> errors; echo $? > code
set -e
find disk -name '.nscl-tmp-*' > leftovers
mount -o remount,size=64m disk
"$2" -m nscl $3 --out disk/runs > resumed
mount -o remount,ro disk
set +e
"$2" -m nscl $3 --seed 1 --out disk/runs > /dev/null 2> readonly; echo $? > readonly-code
cp -r disk/runs runs
"""


@pytest.mark.slow
@pytest.mark.skipif(not private_mounts(), reason="this user may not mount file systems")
@pytest.mark.parametrize(("taken", "task"), [(780_000, 2), (1_030_000, 1)])
def test_a_full_disk_and_a_read_only_one(taken: int, task: int, whole: Any, tmp_path: Path) -> None:
    """The first leaves room for two checkpoints of the first task, not of the second."""
    arguments = ["unshare", "-rm", "sh", "-c", SCRIPT, "sh", str(taken), sys.executable]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [*arguments, " ".join(RUN)], cwd=tmp_path, env=environment, check=False
    )
    assert process.returncode == 0
    written = {p.name: p.read_text() for p in tmp_path.iterdir() if p.is_file()}
    assert written["code"] == "2\n"
    one_line(written["errors"], "No space left on device", "make room or choose another folder")
    assert written["out"].splitlines()[-1].startswith(f"task {task}/2  train  epoch 1")
    assert written["leftovers"] == ""
    assert ("resuming" in written["resumed"]) == (task > 1)
    assert written["readonly-code"] == "2\n"
    one_line(written["readonly"], "Read-only file system")
    assert content(tmp_path) == whole


def test_a_folder_that_cannot_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, errors = finish(nscl(*RUN, "--out", "file/runs", cwd=tmp_path))
    assert code == 2
    one_line(errors, "file/runs", "Not a directory")
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o555)
    code, errors = finish(nscl(*RUN, "--out", "locked", cwd=tmp_path))
    assert code == 2
    one_line(errors, "locked", "Permission denied")


def test_a_file_where_checkpoints_go(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("in the way")
    with pytest.raises(WriteError, match="checkpoint: File exists"):
        Checkpoint(tmp_path / "checkpoint", "run").save_task(0, {})


def test_the_last_good_state_survives_a_failed_save(tmp_path: Path) -> None:
    """What cannot be saved for another reason than the disk is no WriteError, and harms nothing."""
    checkpoint = Checkpoint(tmp_path / "checkpoint", "run")
    checkpoint.save_task(0, {"kept": 1})
    checkpoint.save_epoch(Place(0, 0, 1), {"weight": 2.0})
    with pytest.raises(TypeError):
        checkpoint.save_epoch(Place(0, 0, 2), {"weight": (x for x in ())})
    assert checkpoint.load() == (Place(0, 0, 1), {"kept": 1}, {"weight": 2.0})
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("name", ["epoch.pt", "task-0.pt"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "no checkpoint", "newer"])
def test_damaged_checkpoints_are_distinguished(name: str, damage: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "run")
    checkpoint.save_task(0, {"kept": torch.zeros(2000)})
    checkpoint.save_epoch(Place(), {"weight": torch.zeros(2000)})
    path = tmp_path / name
    if damage == "newer":
        torch.save({"schema": 99, "run": "run"}, path)
    elif damage == "missing":
        path.unlink()
    else:
        whole = path.read_bytes()
        parts = {"truncated": whole[: len(whole) // 2], "empty": b""}
        path.write_bytes(parts.get(damage, b"a text of somebody else's"))
    message = "newer nscl" if damage == "newer" else f"{name} cannot be read"
    with pytest.raises(FormatError, match=message):
        checkpoint.load()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    Checkpoint(tmp_path, "one").save_epoch(Place(), {"weight": 1.0})
    with pytest.raises(FormatError, match=r"epoch\.pt is the checkpoint of another run; move it"):
        Checkpoint(tmp_path, "other").load()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    return folder / run(small("adam-nscl", folder)).directory


@pytest.fixture
def unfinished(trained: Path, tmp_path: Path) -> RunDirectory:
    """A copy of the run that has to be resumed because its result is gone."""
    directory = RunDirectory(shutil.copytree(trained, tmp_path / trained.name))
    directory.result_path.unlink()
    return directory


def refused(directory: RunDirectory, file: str, *parts: str) -> None:
    """Resuming the run is an error of one line that has all ``parts``."""
    with pytest.raises(FormatError) as caught:
        run(small("adam-nscl", directory.path.parent))
    message = str(caught.value)
    assert message.startswith(str(directory.path / file)), message
    assert "\n" not in message
    assert [part for part in parts if part not in message] == []
    assert message.endswith(" start the run again")
    assert not directory.is_finished


def edit(directory: RunDirectory, change: Callable[[dict[str, Any]], object]) -> str:
    """Change the content of whichever checkpoint file has what ``change`` looks for."""
    for path in sorted(directory.checkpoint_path.iterdir()):
        content = torch.load(path, weights_only=True)
        try:
            change(content)
        except KeyError:
            continue
        torch.save(content, path)
        return f"checkpoint/{path.name}"
    raise AssertionError("no file has it")


@pytest.mark.parametrize("key", ["place", "state"])
def test_a_checkpoint_without_a_part_is_named(key: str, unfinished: RunDirectory) -> None:
    file = edit(unfinished, lambda content: content.pop(key))
    refused(unfinished, file, f"has no {key!r}", "delete the run's checkpoint folder")


@pytest.mark.parametrize(
    "key", ["model", "optimizer", "method", "statistics", "records", "progress"]
)
def test_a_state_without_a_key_is_named(key: str, unfinished: RunDirectory) -> None:
    file = edit(unfinished, lambda content: content["state"].pop(key))
    refused(unfinished, file, f"has no {key!r}", "delete the run's checkpoint folder")


def test_a_task_state_without_the_methods_part_is_named(unfinished: RunDirectory) -> None:
    (path,) = unfinished.checkpoint_path.glob("task-*.pt")
    content = torch.load(path, weights_only=True)
    del content["state"]["method"]
    torch.save(content, path)
    refused(unfinished, f"checkpoint/{path.name}", "has no 'method'")


@pytest.mark.parametrize("key", ["rng", "tally"])
def test_a_stop_in_an_epoch_needs_its_keys(key: str, unfinished: RunDirectory) -> None:
    def stop_in_the_epoch(content: dict[str, Any]) -> None:
        content["place"]["epoch"] -= 1
        content["place"]["step"] = 1
        del content["state"][key]

    refused(unfinished, edit(unfinished, stop_in_the_epoch), f"has no {key!r}")


def widen(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = torch.zeros(*tensors[name].shape, 2)


@pytest.mark.parametrize(
    ("key", "change", "reason"),
    [
        ("model", lambda s: widen(s, next(iter(s))), "size mismatch for "),
        ("model", lambda s: s.pop(next(iter(s))), "Missing key(s) in state_dict"),
        ("optimizer", lambda s: widen(s["state"][0], "exp_avg"), "exp_avg has shape ("),
        ("optimizer", lambda s: s["param_groups"].pop(), "different number of parameter groups"),
        ("progress", lambda s: s.pop("spent"), "it lacks 'spent'"),
        ("progress", lambda s: s["matrix"]["rows"].append([1.0]), "row "),
    ],
)
def test_a_part_that_does_not_fit_is_named(
    key: str, change: Callable[[Any], object], reason: str, unfinished: RunDirectory
) -> None:
    file = edit(unfinished, lambda content: change(content["state"][key]))
    refused(unfinished, file, f"{key!r} does not fit this run (", reason)


WEIGHT = "backbone.layers.0.weight"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop(f"reference/{WEIGHT}"), f"it has no weights '{WEIGHT}' of layer "),
        (lambda t: t["covariance/backbone.layers.0"].fill_(float("nan")), "are not finite"),
        (lambda t: t["covariance/backbone.layers.0"].neg_(), "negative values where squares"),
        (lambda t: widen(t, "covariance/backbone.layers.0"), "has shape (1, "),
    ],
)
def test_a_memory_that_was_damaged_is_named(
    change: Callable[[Any], object], reason: str, unfinished: RunDirectory
) -> None:
    file = edit(unfinished, lambda content: change(content["state"]["method"]["tensors"]))
    refused(unfinished, file, "'method' does not fit this run (", reason)


def test_a_damaged_log_is_named_and_left_as_it_is(unfinished: RunDirectory) -> None:
    lines = unfinished.metrics_path.read_bytes().splitlines(keepends=True)
    lines[1] = b"garbage\n"
    unfinished.metrics_path.write_bytes(b"".join(lines))
    refused(unfinished, "metrics.jsonl", "line 2 is truncated or not JSON", "restore the file")
    assert unfinished.metrics_path.read_bytes() == b"".join(lines)


def test_garbage_after_the_records_of_the_checkpoint_is_cut_off(
    unfinished: RunDirectory, trained: Path
) -> None:
    """The epochs after the checkpoint are trained again, so their lines do not count."""
    with unfinished.metrics_path.open("ab") as file:
        file.write(b'garbage\n{"kind": "epo')
    run(small("adam-nscl", unfinished.path.parent))
    before, after = (read_without_seconds(path) for path in (trained, unfinished.path))
    assert after == before


def read_without_seconds(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
