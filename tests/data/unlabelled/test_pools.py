import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nscl.data.catalogue import open_stream
from nscl.data.disk.canonical import DATASETS, Form
from nscl.data.errors import DataError, DataNotFoundError, UnknownBenchmarkError
from nscl.data.streams import stream_from_datasets
from nscl.data.tasks import TaskStream
from nscl.data.unlabelled.pools import PREFERENCES, UnlabelledPool, choose_pool, open_pool


def unchecked(form: Form) -> Form:
    """Small fakes cannot have the published MD5s."""
    return dataclasses.replace(form, files=tuple((name, None) for name, _ in form.files))


@pytest.fixture
def digits() -> TaskStream:
    return open_stream("split-digits-5")


@pytest.fixture
def custom() -> TaskStream:
    images = torch.randint(0, 256, (8, 3, 12, 12), dtype=torch.uint8)
    pictures = torch.utils.data.TensorDataset(images, torch.arange(8) % 2)
    return stream_from_datasets(pictures, pictures, tasks=1)


def test_auto_without_other_data_is_procedural_and_says_so(digits: TaskStream) -> None:
    notices: list[str] = []
    pool = open_pool("auto", like=digits, size=30, notify=notices.append)
    assert (pool.name, len(pool)) == ("procedural", 30)
    assert pool.images.shape[1:] == digits.image_shape
    assert notices == ["unlabelled pool for split-digits-5: procedural"]
    assert open_pool("auto", like=digits, size=30).images.equal(pool.images)
    assert not open_pool("auto", like=digits, size=30, seed=1).images.equal(pool.images)


def test_current_images_are_in_the_name(digits: TaskStream) -> None:
    pool = open_pool("procedural", like=digits, size=30, current=digits[0].train.images)
    assert pool.name == "procedural+current"


def test_a_benchmark_in_another_shape(custom: TaskStream) -> None:
    pool = open_pool("split-digits-5", like=custom, size=100)
    assert pool.name == "digits@12x12"
    assert pool.images.shape == (100, 3, 12, 12)
    assert pool.images[:, 0].equal(pool.images[:, 2])
    assert len(open_pool("digits", like=custom).images) == 1442  # as many as there are


def test_auto_takes_what_is_on_disk(
    cifar10_folder: Path, digits: TaskStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = dataclasses.replace(
        DATASETS["cifar10"], forms=(unchecked(DATASETS["cifar10"].forms[0]),)
    )
    monkeypatch.setitem(DATASETS, "cifar10", small)
    pool = open_pool("auto", like=digits, size=40, data_dir=cifar10_folder.parent)
    assert pool.name == "cifar10@8x8"
    assert pool.images.shape == (40, 1, 8, 8)


def test_a_pool_must_not_be_the_benchmark_itself(digits: TaskStream) -> None:
    for spec in ("digits", "split-digits-5", "permuted-digits"):
        with pytest.raises(DataError, match="cannot be the unlabelled pool"):
            open_pool(spec, like=digits)


def test_preferences_never_name_the_data_set_itself() -> None:
    pictures = {name for name, dataset in DATASETS.items() if dataset.mean}
    assert set(PREFERENCES) == {*pictures, ""}
    for own, names in PREFERENCES.items():
        parts = [part for name in names for part in name.split("+")]
        assert own not in parts
        assert set(parts) <= set(DATASETS)


def test_a_folder_of_any_pictures(picture_folder: Path, digits: TaskStream) -> None:
    spec = f"folder:{picture_folder}"
    pool = open_pool(spec, like=digits, size=10)
    assert pool.name == f"{spec}@8x8"
    assert pool.images.shape == (10, 1, 8, 8)
    assert len(open_pool(spec, like=digits)) == 36
    own = open_stream(spec, tasks=2)
    for other in (spec, f"{spec}/train", f"folder:{picture_folder.parent}"):
        with pytest.raises(DataError, match="same pictures"):
            open_pool(other, like=own)


def as_folder_stream(tree: Path, root: Path) -> str:
    """TinyImageNet's training pictures in class folders, half to train on and half to test."""
    for file in sorted(tree.glob("train/*/images/*")):
        part = "train" if int(file.stem[-1]) % 2 else "test"
        place = root / part / file.name.split("_")[0] / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    return f"folder:{root}"


def test_a_stream_inside_the_data_set_is_seen_by_its_place(tiny_tree: Path) -> None:
    spec = as_folder_stream(tiny_tree, tiny_tree / "mine")
    own, where = open_stream(spec, tasks=3), tiny_tree.parent
    with pytest.raises(DataError, match=f"tinyimagenet cannot .* in {tiny_tree} are the stream's"):
        open_pool("tinyimagenet", like=own, data_dir=where)
    assert choose_pool(spec, where) == "procedural"
    assert choose_pool(f"folder:{where}", where) == "tinyimagenet"  # beside it is not in it


@pytest.mark.parametrize("size", [64, 32])
def test_copies_of_the_data_set_are_seen_by_what_they_show(
    tiny_tree: Path, tmp_path: Path, size: int
) -> None:
    """Whatever their names are, and however they were scaled."""
    spec = as_folder_stream(tiny_tree, tmp_path / "mine")
    own = open_stream(spec, tasks=3, size=size)
    assert choose_pool(spec, tmp_path) == "tinyimagenet"
    for count in (1, 100):
        with pytest.raises(
            DataError, match=r"tinyimagenet cannot .* folder:.*: 12 of 12 images are"
        ):
            open_pool("auto", like=own, size=count, data_dir=tmp_path)
    lazy = open_stream(spec, tasks=3, size=size, max_bytes=0)
    with pytest.raises(DataError, match="for example procedural"):
        open_pool("tinyimagenet", like=lazy, data_dir=tmp_path)


def test_a_stream_handed_over_is_compared_too(digits: TaskStream, tiny_tree: Path) -> None:
    images = torch.cat([task.train.images for task in digits])[::3]
    labels = torch.arange(len(images)) % 2
    pictures = torch.utils.data.TensorDataset(images, labels)
    own = stream_from_datasets(pictures, pictures, tasks=1, name="mine", size=16)
    with pytest.raises(
        DataError, match=r"digits cannot be the unlabelled pool of mine: [0-9,]+ of"
    ):
        open_pool("digits", like=own, size=1)
    assert len(open_pool("tinyimagenet", like=own, data_dir=tiny_tree.parent)) == 12


def test_a_folder_of_the_benchmarks_own_pictures(
    tiny_tree: Path, tmp_path: Path, digits: TaskStream
) -> None:
    where = tiny_tree.parent
    tiny = open_stream("split-tinyimagenet-25", tasks=3, data_dir=where)
    with pytest.raises(DataError, match="same pictures; choose another pool"):
        open_pool(f"folder:{tiny_tree}/train", like=tiny, data_dir=where)
    copies = as_folder_stream(tiny_tree, tmp_path / "copies")
    with pytest.raises(DataError, match="12 of 12 images are the stream's own"):
        open_pool(copies, like=tiny, data_dir=where)
    assert len(open_pool(copies, like=digits)) == 12


@pytest.mark.parametrize("seed", range(3))
def test_a_pool_of_one_picture_tells_whether_the_folder_can_be_had(
    seed: int, tiny_tree: Path, tmp_path: Path, make_picture: Callable[..., None]
) -> None:
    """Methods ask for one before a run begins: what is wrong must not wait for the first task."""
    tiny = open_stream("split-tinyimagenet-25", tasks=3, data_dir=tiny_tree.parent)
    mixed = tmp_path / "mixed"
    for number in range(40):
        make_picture(mixed / f"{number}.png", 5000 + number)
    assert len(open_pool(f"folder:{mixed}", like=tiny, size=1, seed=seed)) == 1
    shutil.copy(tiny_tree / "train" / "n01" / "images" / "n01_0.JPEG", mixed)
    with pytest.raises(DataError, match="1 of 41 images are the stream's own"):
        open_pool(f"folder:{mixed}", like=tiny, size=1, seed=seed)


def test_mistakes_are_named(digits: TaskStream, tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="not a folder with pictures"):
        open_pool(f"folder:{tmp_path / 'none'}", like=digits)
    with pytest.raises(UnknownBenchmarkError, match="did you mean 'cifar10"):
        open_pool("cifar10o", like=digits)
    with pytest.raises(DataNotFoundError, match="nscl data fetch cifar100"):
        open_pool("cifar100", like=digits)
    with pytest.raises(DataError, match="at least one image"):
        open_pool("procedural", like=digits, size=0)


def test_samples_repeat_no_image_before_all_were_drawn() -> None:
    pool = UnlabelledPool("p", torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1))
    generator = torch.Generator().manual_seed(0)
    assert len(set(pool.sample(7, generator).flatten().tolist())) == 7
    counts = torch.bincount(pool.sample(25, generator).flatten().long(), minlength=10)
    assert set(counts.tolist()) <= {2, 3}
    assert len(pool.sample(0)) == 0


def test_tinyimagenet_is_the_pool_of_cifar(real_data: Path) -> None:
    stream = open_stream("split-cifar100-10", data_dir=real_data)
    pool = open_pool("auto", like=stream, size=5000, data_dir=real_data)
    assert pool.name == "tinyimagenet@32x32"
    assert pool.images.shape == (5000, 3, 32, 32)
    assert 0.3 < pool.images.float().mean() / 255 < 0.6
    tiny = open_stream("split-tinyimagenet-25", data_dir=real_data)
    back = open_pool("auto", like=tiny, size=100, data_dir=real_data)
    assert (back.name, back.images.shape) == ("cifar100@64x64", (100, 3, 64, 64))
