"""``nscl.run``: on class folders or data from Python, in one folder per run, with its label."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import nscl
from nscl.data import TaskStream, stream_from_datasets
from nscl.methods import METHODS
from nscl.results import RunDirectory
from nscl.training.config.build import build_config
from nscl.training.config.schema import ConfigError, RunConfig
from tests.runs import nscl as command
from tests.runs import small

SETTINGS: dict[str, Any] = {
    "method": "finetune",
    "threads": 1,
    "model": {"name": "mlp", "width": 8},
    "optim": {"epochs": 1, "batch_size": 8},
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of coloured noise: 10 pictures to train and 4 to test each."""
    root, draw = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for part, count in (("train", 10), ("test", 4)):
        for label in range(4):
            folder = root / part / f"class {label}"
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 60, (12, 12, 3)) + 60 * label
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return root


def folder_config(pictures: Path, out: Path, **given: Any) -> RunConfig:
    settings = SETTINGS | {"out": out, "data": {"tasks": 2, "size": 8} | given.pop("data", {})}
    return build_config(f"folder:{pictures}", settings | given)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_from_class_folders(
    method: str, pictures: Path, tmp_path: Path
) -> None:
    model = {"name": "convnet", "width": 4}
    result = nscl.run(folder_config(pictures, tmp_path, method=method, model=model))
    assert result.accuracy.tasks == 2
    assert 0 <= result.acc <= 100


@pytest.mark.parametrize("method", ["finetune", "joint", "gd-wild"])
def test_pictures_decoded_while_training_give_the_same_run(
    method: str, pictures: Path, tmp_path: Path
) -> None:
    whole = nscl.run(folder_config(pictures, tmp_path, method=method))
    lazy = nscl.run(folder_config(pictures, tmp_path, method=method, data={"max_bytes": 0}))
    assert lazy.accuracy == whole.accuracy
    assert lazy.directory != whole.directory


def own_stream(seed: int) -> TaskStream:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(40) % 4
    images = (torch.rand(40, 1, 4, 4, generator=draw) + labels[:, None, None, None]) / 5
    data = TensorDataset(images, labels)
    return stream_from_datasets(data, data, tasks=2)


def test_a_stream_from_python_is_known_by_its_data(tmp_path: Path) -> None:
    config = RunConfig(benchmark="mine", out=tmp_path, **SETTINGS)
    first, again = (nscl.run(config, stream=own_stream(0)) for _ in range(2))
    other = nscl.run(config, stream=own_stream(1))
    assert first.directory == again.directory != other.directory
    assert first.benchmark == "mine"
    with pytest.raises(ConfigError, match="handed over in Python"):
        nscl.run(RunConfig(**first.config, out=tmp_path / "elsewhere"))


def test_resuming_it_on_the_command_line_says_where_it_goes_on(tmp_path: Path) -> None:
    config = RunConfig(benchmark="mine", out=tmp_path, **SETTINGS)
    result = nscl.run(config, stream=own_stream(0))
    (tmp_path / result.directory / "result.json").unlink()
    process = command("resume", result.directory, cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "nscl.run(config, stream=...)" in errors


def test_a_label_is_kept_and_never_replaced(tmp_path: Path) -> None:
    settings = {"data": {"first": 1}, "optim": {"epochs": 1}}
    result = nscl.run(small("finetune", tmp_path, label="as it is", **settings))
    run = RunDirectory(tmp_path / result.directory)
    assert run.identity().environment["label"] == "as it is"
    assert result.environment["label"] == "as it is"
    assert "as it is" not in json.dumps(dict(result.config))
    before = {file: file.stat().st_mtime_ns for file in run.path.rglob("*")}
    again = nscl.run(small("finetune", tmp_path, label="called otherwise", **settings))
    assert again.directory == result.directory
    assert {file: file.stat().st_mtime_ns for file in run.path.rglob("*")} == before


def test_threads_are_restored(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    settings = {"data": {"first": 1}, "optim": {"epochs": 1}, "threads": before + 1}
    nscl.run(small("finetune", tmp_path, **settings))
    assert torch.get_num_threads() == before


def test_no_folder_is_made_for_a_run_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(nscl.NsclError, match="1, 2, 5, 10"):
        nscl.run(small("finetune", tmp_path / "runs", data={"tasks": 3}))
    assert not (tmp_path / "runs").exists()
