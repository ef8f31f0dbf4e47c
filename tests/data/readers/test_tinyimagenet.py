import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nscl.data.errors import CorruptDataError
from nscl.data.readers.raw import RawDataset
from nscl.data.readers.tinyimagenet import read_tinyimagenet


def pack(tree: Path, suffix: str) -> Path:
    archive = tree.with_name(f"{tree.name}.{suffix}")
    if suffix == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(tree.rglob("*"), reverse=True):
                file.write(path, path.relative_to(tree.parent))
            file.writestr("__MACOSX/tiny-imagenet-200/train/n01/images/._n01_0.JPEG", b"junk")
        return archive
    mode = {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz"}[suffix]
    with tarfile.open(archive, mode) as tar:
        tar.add(tree, tree.name)
    return archive


def same(one: RawDataset, other: RawDataset) -> None:
    for part in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
    assert one.class_names == other.class_names


def test_classes_are_in_order_of_wnids_and_labels_follow_the_annotations(tiny_tree: Path) -> None:
    raw = read_tinyimagenet(tiny_tree)
    assert raw.class_names == ("goldfish", "bullfrog", "n03")
    assert raw.train_labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert raw.test_labels.tolist() == [0, 0, 1, 1, 2, 2]
    first = Image.open(tiny_tree / "train" / "n01" / "images" / "n01_0.JPEG")
    np.testing.assert_array_equal(raw.train_images[0], np.asarray(first).transpose(2, 0, 1))
    # val_0 and val_3 are annotated n03, the last class
    third = Image.open(tiny_tree / "val" / "images" / "val_3.JPEG")
    np.testing.assert_array_equal(raw.test_images[5], np.asarray(third).transpose(2, 0, 1))


@pytest.mark.parametrize("suffix", ["zip", "tar.xz"])
def test_archives_equal_the_tree_whatever_their_order(tiny_tree: Path, suffix: str) -> None:
    same(read_tinyimagenet(pack(tiny_tree, suffix)), read_tinyimagenet(tiny_tree))


def test_a_validation_set_sorted_by_hand_is_the_same(tiny_tree: Path) -> None:
    before = read_tinyimagenet(tiny_tree)
    lines = (tiny_tree / "val" / "val_annotations.txt").read_text().splitlines()
    for line in lines:
        name, wnid = line.split("\t")[:2]
        (tiny_tree / "val" / wnid).mkdir(exist_ok=True)
        shutil.move(tiny_tree / "val" / "images" / name, tiny_tree / "val" / wnid / name)
    same(read_tinyimagenet(tiny_tree), before)
    (tiny_tree / "val" / "val_annotations.txt").unlink()
    same(read_tinyimagenet(tiny_tree), before)


def test_a_part_says_that_it_is_one(tiny_tree: Path) -> None:
    assert "12 of 100,000 training and 6 of 10,000 test" in read_tinyimagenet(tiny_tree).note


def test_damage_is_named(tiny_tree: Path) -> None:
    annotations = tiny_tree / "val" / "val_annotations.txt"
    whole = annotations.read_text()
    annotations.write_text(whole + "val_9.JPEG\tn01\t0\t0\t1\t1\n")
    with pytest.raises(CorruptDataError, match=r"lacks 1 of the pictures.*val_9"):
        read_tinyimagenet(tiny_tree)
    annotations.write_text("\n".join(whole.splitlines()[1:]))
    with pytest.raises(CorruptDataError, match=r"1 validation pictures have no class.*val_0"):
        read_tinyimagenet(tiny_tree)
    annotations.write_text(whole)
    picture = tiny_tree / "train" / "n02" / "images" / "n02_1.JPEG"
    picture.write_bytes(picture.read_bytes()[:200])
    with pytest.raises(CorruptDataError, match=r"n02_1\.JPEG cannot be decoded"):
        read_tinyimagenet(tiny_tree)
    Image.new("RGB", (32, 32)).save(picture)
    with pytest.raises(CorruptDataError, match=r"n02_1\.JPEG is not a 64×64"):
        read_tinyimagenet(tiny_tree)
    shutil.rmtree(tiny_tree / "train")
    with pytest.raises(CorruptDataError, match="no pictures in train"):
        read_tinyimagenet(tiny_tree)


def test_the_real_archive(real_data: Path) -> None:
    raw = read_tinyimagenet(real_data / "tiny-imagenet-200.tar.xz")
    assert raw.train_images.shape == (20_000, 3, 64, 64)
    assert np.bincount(raw.train_labels).tolist() == [100] * 200
    assert np.bincount(raw.test_labels).tolist() == [20] * 200
    assert raw.class_names[0] == "goldfish"
    assert "20,000 of 100,000" in raw.note
