import dataclasses
import gzip
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from nscl.data.catalogue import open_stream
from nscl.data.disk.canonical import DATASETS, Dataset
from nscl.data.errors import DataError, DataNotFoundError


def without_checksums(dataset: Dataset) -> Dataset:
    """Small fakes cannot have the published MD5s."""
    forms = tuple(
        dataclasses.replace(
            form, checksum=None, files=tuple((name, None) for name, _ in form.files)
        )
        for form in dataset.forms
    )
    return dataclasses.replace(dataset, forms=forms)


@pytest.fixture(autouse=True)
def fakes_are_accepted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real_data" not in request.fixturenames:
        for name, dataset in DATASETS.items():
            monkeypatch.setitem(DATASETS, name, without_checksums(dataset))


def test_split_digits() -> None:
    stream = open_stream("split-digits-5")
    assert (stream.name, len(stream), stream.scenario) == ("split-digits-5", 5, "task")
    assert stream.classes_per_task == (2,) * 5
    assert [task.classes for task in stream] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert sum(len(task.train) + len(task.test) for task in stream) == 1797
    for task in stream:
        assert task.train.images.dtype == torch.uint8
        assert task.train.labels.unique().tolist() == [0, 1]
    pixels = torch.cat([task.train.images for task in stream]).double() / 255
    assert stream.mean == pytest.approx((pixels.mean().item(),), abs=1e-3)
    assert stream.std == pytest.approx((pixels.std().item(),), abs=1e-3)


def test_options_change_the_stream() -> None:
    stream = open_stream("split-digits-5", order="random", seed=4, tasks=2, size=16)
    assert stream.classes_per_task == (5, 5)
    assert stream.image_shape == (1, 16, 16)
    classes = [label for task in stream for label in task.classes]
    assert sorted(classes) == list(range(10))
    assert classes != list(range(10))
    again = open_stream("split-digits-5", order="random", seed=4, tasks=2, size=16)
    assert again[1].train.images.equal(stream[1].train.images)
    assert open_stream("split-digits-5", scenario="domain").scenario == "domain"


@pytest.mark.parametrize("name", ["permuted-digits", "rotated-digits"])
def test_domain_streams_have_the_same_classes_under_other_changes(name: str) -> None:
    stream = open_stream(name, tasks=3)
    assert (len(stream), stream.scenario) == (3, "domain")
    assert len(open_stream(name)) == 5
    assert {task.classes for task in stream} == {tuple(range(10))}
    for task in stream:
        assert task.train.labels.equal(stream[0].train.labels)
        assert (len(task.train), len(task.test)) == (1442, 355)
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert not stream[one].train.images.equal(stream[other].train.images)
    assert open_stream(name, tasks=3, seed=0)[2].test.images.equal(stream[2].test.images)
    assert not open_stream(name, tasks=3, seed=1)[2].test.images.equal(stream[2].test.images)
    shuffled = open_stream(name, tasks=3, order="random", seed=2)
    assert sorted(t.name for t in shuffled) == sorted(
        t.name for t in open_stream(name, tasks=3, seed=2)
    )


def test_labels_of_one_growing_head_go_on_from_task_to_task() -> None:
    plain, grown = (open_stream("split-digits-5", scenario=s) for s in ("task", "class"))
    assert [task.first_label for task in grown] == [0, 2, 4, 6, 8]
    for before, now in zip(plain, grown, strict=True):
        assert now.train.images is before.train.images or now.train.images.equal(
            before.train.images
        )
        assert now.train.labels.equal(before.train.labels + now.first_label)
        assert now.test.labels.equal(before.test.labels + now.first_label)
    assert len(grown.restrict(2)) == 2
    with pytest.raises(DataError, match="'0' is a class of several tasks; choose another"):
        open_stream("permuted-digits", scenario="class")


def test_wrong_options_are_named() -> None:
    for options, complaint in (
        ({"tasks": 3}, "choose a number of tasks from 1, 2, 5, 10"),
        ({"size": 0}, "size must be a positive number, not 0"),
        ({"scenario": "classes"}, "choose task, domain, class"),
        ({"order": "odd"}, "'natural' or 'random'"),
    ):
        with pytest.raises(DataError, match=complaint):
            open_stream("split-digits-5", **options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="at least one task"):
        open_stream("permuted-digits", tasks=0)


def test_cifar10_from_folder_and_archive(cifar10_folder: Path, tmp_path: Path) -> None:
    stream = open_stream("split-cifar10-5", data_dir=tmp_path)
    assert (len(stream), stream.image_shape, stream.augment) == (5, (3, 32, 32), "crop-flip")
    assert stream[1].class_names == ("class2", "class3")
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(cifar10_folder, cifar10_folder.name)
    assert open_stream("split-cifar10-5", data_dir=other)[4].train.images.equal(
        stream[4].train.images
    )


@pytest.mark.parametrize("name", ["split-fashion-mnist-5", "permuted-fashion-mnist"])
def test_fashion_mnist(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for part, count in (("train", 60), ("t10k", 20)):
        images = np.arange(count * 784).astype(np.uint8).tobytes()
        labels = bytes(i % 10 for i in range(count))
        head = struct.pack(">IIII", 0x803, count, 28, 28)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images))
        head = struct.pack(">II", 0x801, count)
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head + labels))
    monkeypatch.setenv("NSCL_DATA", str(tmp_path))
    stream = open_stream(name)
    assert (len(stream), stream.image_shape) == (5, (1, 28, 28))
    assert stream[0].class_names[0] == "T-shirt/top"
    assert sum(len(task.train) for task in stream) == (60 if name.startswith("split") else 300)


def test_tinyimagenet_is_decoded_once_and_says_that_it_is_a_part(tiny_tree: Path) -> None:
    notices: list[str] = []
    options = {"data_dir": tiny_tree.parent, "tasks": 3, "notify": notices.append}
    stream = open_stream("split-tinyimagenet-25", **options)  # type: ignore[arg-type]
    assert [task.name for task in stream] == ["goldfish", "bullfrog", "n03"]
    assert stream.image_shape == (3, 64, 64)
    assert "12 of 100,000" in stream.note
    assert len(notices) == 2
    again = open_stream("split-tinyimagenet-25", **options)  # type: ignore[arg-type]
    assert again[2].test.images.equal(stream[2].test.images)
    assert [line for line in notices[2:] if "decoding" in line] == []


def test_missing_data_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="`nscl data fetch split-cifar100-20`"):
        open_stream("split-cifar100-20", data_dir=tmp_path)


def test_the_real_cifar100_is_the_papers_stream(real_data: Path) -> None:
    stream = open_stream("split-cifar100-10", data_dir=real_data)
    assert [task.classes for task in stream] == [
        tuple(range(10 * index, 10 * index + 10)) for index in range(10)
    ]
    for task in stream:
        assert torch.bincount(task.train.labels).tolist() == [500] * 10
        assert torch.bincount(task.test.labels).tolist() == [100] * 10
    assert (stream.mean, stream.std) == ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
    twenty = open_stream("split-cifar100-20", data_dir=real_data)
    assert twenty.classes_per_task == (5,) * 20
    both = torch.cat([twenty[0].train.images, twenty[1].train.images])
    assert both.long().sum() == stream[0].train.images.long().sum()
    assert stream[0].class_names == twenty[0].class_names + twenty[1].class_names
    assert stream[0].name == "apple … bottle"


def test_the_real_tinyimagenet(real_data: Path) -> None:
    stream = open_stream("split-tinyimagenet-25", data_dir=real_data)
    assert [len(task.train) for task in stream] == [800] * 25
    assert [len(task.test) for task in stream] == [160] * 25
    assert stream.classes_per_task == (8,) * 25
