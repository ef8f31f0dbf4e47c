"""Memories on disk: whole or not at all, for any process, unlike any other file."""

import copy
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import nscl
from nscl.core import serialization as storage
from nscl.errors import MemoryFileError, ModelMismatchError
from tests.core.memories import remembered, same

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def network(width: int = 6) -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(9, 4),
        nn.Flatten(),
        nn.Linear(8, width),
        nn.BatchNorm1d(width),
        nn.Linear(width, 3),
    )


OLD = torch.tensor([[1, 2], [3, 1], [2, 2], [1, 3]])


def made(model: nn.Module, **options: Any) -> nscl.Memory:
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-5), **options)
    memory.remember([OLD])
    return memory


def run(code: str, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_fresh_process_with_a_fresh_model_protects_the_same(tmp_path: Path) -> None:
    model = network()
    memory = made(model, statistics="freeze", norms="freeze")
    memory.save(tmp_path / "memory.safetensors")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    code = """
        import sys, torch, nscl
        from pathlib import Path
        from torch import nn
        folder = Path(sys.argv[1])
        model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 6),
                              nn.BatchNorm1d(6), nn.Linear(6, 3))
        model.load_state_dict(torch.load(folder / "model.pt", weights_only=True))
        memory = nscl.Memory.load(folder / "memory.safetensors", model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        memory.protect(optimizer)
        for seed in range(5):
            torch.manual_seed(seed)
            optimizer.zero_grad()
            model(torch.randint(0, 9, (8, 2))).square().sum().backward()
            optimizer.step()
        torch.save(model.state_dict(), folder / "after.pt")
    """
    process = run(code, str(tmp_path))
    assert process.communicate() == ("", "")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    before = model.eval()(OLD).detach()
    model.train()
    for seed in range(5):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        model(torch.randint(0, 9, (8, 2))).square().sum().backward()
        optimizer.step()
    theirs = torch.load(tmp_path / "after.pt", weights_only=True)
    for name, value in model.state_dict().items():
        assert torch.allclose(value, theirs[name], atol=1e-5), name
    assert (model.eval()(OLD) - before).abs().max() < 1e-4
    assert (model(OLD + 4) - before).abs().max() > 0.1


@pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")
def test_a_memory_of_version_1_is_read_with_the_options_it_was_saved_with() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    memory = nscl.Memory(model, rule=nscl.Ridge(3.0), acts_on="displacement")
    memory.remember([torch.randn(8, 4)])
    state = memory.state_dict()
    written = copy.deepcopy({**state["metadata"], "version": 1})
    del written["gradients"]
    for added in ("factors", "every", "rank"):
        del written["options"][added]
    tensors = {name: t for name, t in state["tensors"].items() if "rest/" not in name}
    options = storage.read_options(written)
    again = nscl.Memory(model, **options)
    again.load_state_dict({"metadata": written, "tensors": tensors})
    assert again.options() == memory.options()
    assert (again.factors, again.every, again.tasks) == ("input", 1, 1)


@pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")
def test_a_memory_of_version_2_knew_no_ranks(tmp_path: Path) -> None:
    model = network()
    memory = made(model)
    memory.save(tmp_path / "m")
    rewritten(tmp_path / "m", lambda m, t: m.update(version=2) or m["options"].pop("rank"))
    again = nscl.Memory.load(tmp_path / "m", model)
    assert again.options() == memory.options()
    assert same(remembered(again), remembered(memory))


def test_no_pickle_and_a_version(tmp_path: Path) -> None:
    made(network()).save(tmp_path / "m")
    with safe_open(tmp_path / "m", "pt") as file:
        metadata = json.loads(file.metadata()["nscl"])
    assert (metadata["format"], metadata["version"], metadata["tasks"]) == ("nscl-memory", 3, 1)
    assert metadata["nscl"] == nscl.__version__


def test_a_file_of_another_model_names_the_layer_and_both_shapes(tmp_path: Path) -> None:
    made(network()).save(tmp_path / "m")
    with pytest.raises(ModelMismatchError, match=r"layer '2'.*6 × 8.*7 × 8"):
        nscl.Memory.load(tmp_path / "m", network(width=7))
    with pytest.raises(ModelMismatchError, match=r"layer '0' \(Embedding.*has no such.*it has: 1"):
        nscl.Memory.load(tmp_path / "m", nn.Sequential(nn.Flatten(), nn.Linear(8, 6)))


def rewritten(path: Path, change: Any) -> None:
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = json.loads(file.metadata()["nscl"])
    metadata = change(metadata, tensors) or metadata
    save_file({k: t.clone() for k, t in tensors.items()}, path, {"nscl": json.dumps(metadata)})


BROKEN: dict[str, tuple[Any, str]] = {
    "newer": (lambda m, t: m.update(version=4), "format version 4, written by nscl .*upgrade"),
    "foreign mark": (lambda m, t: m.update(format="other"), "not a memory saved by nscl"),
    "a list": (lambda m, t: [1], "not a memory saved by nscl"),
    "no blocks": (lambda m, t: m.pop("blocks") and None, "incomplete: KeyError.'blocks'."),
    "a tensor missing": (lambda m, t: t.pop("covariance/2") is None, "incomplete.*covariance/2"),
    "no options": (lambda m, t: m.pop("options") and None, "options cannot be read"),
    "an unknown rule": (lambda m, t: m["options"].update(rule={"name": "Magic"}), "'Magic'"),
    "a bad rule": (
        lambda m, t: m["options"].update(rule={"name": "Ratio", "a": -1}),
        "options cannot be read",
    ),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_files_that_are_no_memories_of_ours(tmp_path: Path, change: Any, message: str) -> None:
    model, path = network(), tmp_path / "m"
    made(model).save(path)
    rewritten(path, change)
    with pytest.raises(MemoryFileError, match=message):
        nscl.Memory.load(path, model)


def test_truncated_foreign_and_missing_files(tmp_path: Path) -> None:
    model, path = network(), tmp_path / "m"
    made(model).save(path)
    whole = path.read_bytes()
    for length in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(MemoryFileError, match=r"m is truncated or not a safetensors file"):
            nscl.Memory.load(path, model)
    path.write_text("not a memory at all, just some text that someone put there")
    with pytest.raises(MemoryFileError, match="truncated or not a safetensors"):
        nscl.Memory.load(path, model)
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(MemoryFileError, match="safetensors file, but not a memory saved by nscl"):
        nscl.Memory.load(path, model)
    with pytest.raises(MemoryFileError, match="nowhere does not exist"):
        nscl.Memory.load(tmp_path / "nowhere", model)
    with pytest.raises(MemoryFileError):
        nscl.Memory.load(tmp_path, model)


def test_a_target_that_cannot_be_written_is_named_and_loses_nothing(tmp_path: Path) -> None:
    memory, file = made(network()), tmp_path / "file"
    file.write_text("old")
    for target in (tmp_path / "no" / "m", tmp_path, file / "m"):
        with pytest.raises(MemoryFileError, match=f"{target} cannot be written"):
            memory.save(target)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "old"


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    made(network()).save(tmp_path / "m")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "m")}
    assert len(modes) == 1


def test_a_link_stays_a_link_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    model, target, link = network(), tmp_path / "store" / "m", tmp_path / "latest"
    target.parent.mkdir()
    link.symlink_to(target)
    memory = made(model)
    for tasks in (1, 2):  # to nowhere at first
        memory.save(link)
        memory.remember([OLD])
        assert link.is_symlink()
        assert nscl.Memory.load(target, model).tasks == tasks
    assert list(target.parent.iterdir()) == [target]


def test_a_process_killed_while_saving_leaves_the_old_file_whole(tmp_path: Path) -> None:
    code = """
        import sys, torch, nscl, warnings
        from torch import nn
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        memory = nscl.Memory(nn.Linear(1200, 1), rule=nscl.Tolerance(0.5))
        memory.remember([torch.ones(2, 1200)])
        memory.save(sys.argv[1])
        print("saved", flush=True)
        while True:
            memory.save(sys.argv[1])
    """
    path = tmp_path / "m"
    process = run(code, str(path))
    assert process.stdout is not None
    assert process.stdout.readline() == "saved\n"
    deadline = time.monotonic() + 30
    while not any(p != path for p in tmp_path.iterdir()):  # until it is in the middle of it
        assert time.monotonic() < deadline
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    torch.manual_seed(0)
    model = nn.Linear(1200, 1)
    loaded = nscl.Memory.load(path, model)
    assert loaded.tasks == 1
    rows = torch.ones(1201, dtype=torch.float64)
    assert loaded.forgetting().total.drift == 0
    assert torch.equal(loaded._state.covariances["model"].dense()[0], torch.outer(rows, rows))
