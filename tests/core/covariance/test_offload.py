"""Covariances on disk: each memory has its own, whoever copies it, forks or ends."""

import copy
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.errors import MemoryFileError
from tests.core.memories import hooks, move, remembered, same

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

OLD = torch.tensor([[1, 2], [3, 1], [2, 2], [1, 3]])


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
    )


def made(model: nn.Module, **options: Any) -> nscl.Memory:
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-5), **options)
    memory.remember([OLD])
    return memory


def folders(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.iterdir() if path.name.startswith("nscl-")]


def test_offloaded_covariances_lie_on_disk_and_go_with_their_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = network()
    kept, memory = made(model), made(model, offload="disk")
    assert memory.nbytes == {**kept.nbytes, "covariances": 0}
    assert kept.nbytes["covariances"] > 0
    for _ in range(3):
        kept.remember([OLD])
        memory.remember([OLD])
        (folder,) = folders(tmp_path)
        assert len(list(folder.iterdir())) == 3  # the older ones are gone
    on_disk = sum(path.stat().st_size for path in folder.iterdir())
    assert on_disk >= kept.nbytes["covariances"]
    assert same({**remembered(memory), "metadata": 0}, {**remembered(kept), "metadata": 0})
    assert memory.report().layers == kept.report().layers
    move(model)
    assert memory.forgetting() == kept.forgetting()
    memory.save(tmp_path / "m")
    loaded = nscl.Memory.load(tmp_path / "m", model)
    assert loaded.offload == "disk"
    assert loaded.nbytes["covariances"] == 0
    assert len(folders(tmp_path)) == 2
    del memory, loaded
    assert folders(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_needs_less_memory_by_the_size_of_the_covariances() -> None:
    code = """
        import ctypes, gc, re, warnings, torch, nscl
        from pathlib import Path
        from torch import nn
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        model, old = nn.Linear(1000, 2), torch.randn(20, 1000)

        def resident():
            gc.collect()
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            status = Path("/proc/self/status").read_text()
            return 1024 * int(re.search("RssAnon: *\\t* *([0-9]+)", status)[1])

        def grown(offload):
            before = resident()
            memory = nscl.Memory(model, rule=nscl.Ratio(), offload=offload)
            memory.remember([old])
            return resident() - before, memory.nbytes["covariances"]

        grown(None)  # what torch keeps for itself after its first eigenvectors
        (kept, size), (offloaded, none) = grown(None), grown("disk")
        print(kept - offloaded, size, none)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    # A fixed threshold: what is freed goes back to the system at once.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    saved, size, none = map(int, done.stdout.split())
    assert (size, none) == (8 * 1001 * 1002 // 2, 0)
    assert 0.8 * size < saved < 1.2 * size


def test_a_failed_remember_leaves_offloaded_covariances_in_place() -> None:
    model = network()
    memory = made(model, offload="disk")
    known, before = remembered(memory), hooks(model)
    with pytest.raises(nscl.NsclError):
        memory.remember([OLD, Tensor()])
    assert same(remembered(memory), known)
    assert hooks(model) == before


def test_a_temporary_folder_that_was_cleaned_up_is_an_error_with_a_way_out() -> None:
    model = network()
    memory = made(model, offload="disk")
    assert memory._disk is not None
    shutil.rmtree(memory._disk.folder)
    for act in (memory.forgetting, lambda: memory.remember([OLD])):
        with pytest.raises(MemoryFileError, match=r"is gone .* set TMPDIR"):
            act()
    memory = nscl.Memory(model, rule=nscl.Ratio(), offload="disk")
    assert memory._disk is not None
    shutil.rmtree(memory._disk.folder)
    with pytest.raises(MemoryFileError, match=r"cannot be written .*the memory is unchanged"):
        memory.remember([OLD])
    assert memory.tasks == 0


def test_a_copy_and_its_original_do_not_touch_each_others_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = made(network(), offload="disk")
    known = remembered(memory)
    twin = copy.deepcopy(memory)
    assert twin.nbytes["covariances"] == 0
    twin.remember([OLD + 1])
    assert same(remembered(memory), known)
    now = remembered(twin)
    memory.remember([OLD + 2])
    del memory
    assert same(remembered(twin), now)
    twin.remember([OLD + 3])
    assert len([file for folder in folders(tmp_path) for file in folder.iterdir()]) == 3
    del twin
    assert folders(tmp_path) == []


def test_a_copy_outlives_its_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = made(network(), offload="disk")
    known, twin = remembered(memory), copy.deepcopy(memory)
    del memory
    assert same(remembered(twin), known)
    del twin
    assert folders(tmp_path) == []


def test_a_forked_child_leaves_its_parents_files_alone(tmp_path: Path) -> None:
    code = """
        import os, sys, tempfile, warnings, torch, nscl
        from pathlib import Path
        from torch import nn
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        tempfile.tempdir = sys.argv[1]
        memory = nscl.Memory(nn.Linear(6, 3), rule=nscl.Ratio(), offload="disk")
        memory.remember([torch.randn(3, 6)])
        for works in (False, True):
            child = os.fork()
            if not child:
                if works:
                    memory.remember([torch.randn(3, 6)])
                    assert memory.forgetting().total.drift == 0
                    assert len(list(Path(sys.argv[1]).iterdir())) == 2
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert len(list(Path(sys.argv[1]).iterdir())) == 1  # its own went with it
            memory.remember([torch.randn(3, 6)])
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
