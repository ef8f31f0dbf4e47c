import io
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nscl.data.errors import DataError
from nscl.data.images.files import FileSplit
from nscl.data.stored.episodic import EpisodicMemory
from nscl.data.tasks import Split


def split(labels: list[int], offset: int = 0) -> Split:
    """Image i is filled with offset + i."""
    images = torch.arange(offset, offset + len(labels), dtype=torch.uint8).view(-1, 1, 1, 1)
    return Split(images.repeat(1, 3, 2, 2), torch.tensor(labels))


def filled(per_class: int = 3) -> tuple[EpisodicMemory, list[Split]]:
    generator = torch.Generator().manual_seed(0)
    memory = EpisodicMemory(per_class)
    parts = [split([0, 1] * 8), split([1, 0, 2] * 6, 100)]
    for index, part in enumerate(parts):
        memory.add(index, part, generator)
    return memory, parts


@settings(deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(0, 4), min_size=1, max_size=50), st.integers(0, 9))
def test_equally_many_of_each_class_as_far_as_there_are(
    per_class: int, labels: list[int], seed: int
) -> None:
    memory, part = EpisodicMemory(per_class), split(labels)
    memory.add(4, part, torch.Generator().manual_seed(seed))
    kept = memory.task(4)
    for label in set(labels):
        assert int((kept.labels == label).sum()) == min(per_class, labels.count(label))
    rows = kept.images[:, 0, 0, 0].long()
    assert len(set(rows.tolist())) == len(rows)
    assert part.labels[rows].equal(kept.labels)


def test_the_choice_is_the_seeds_and_not_the_first_ones() -> None:
    part = split([0] * 50)
    choices = []
    for seed in (0, 0, 1):
        memory = EpisodicMemory(5)
        memory.add(0, part, torch.Generator().manual_seed(seed))
        choices.append(sorted(memory.task(0).images[:, 0, 0, 0].tolist()))
    assert choices[0] == choices[1] != choices[2]
    assert choices[0] != [0, 1, 2, 3, 4]


def test_memory_is_its_own_copy_in_uint8() -> None:
    part = split([0, 1])
    memory = EpisodicMemory(1)
    memory.add(0, part)
    part.images.zero_()
    assert memory.task(0).images.max() == 1
    assert memory.task(0).images.dtype == torch.uint8
    assert memory.bytes == 2 * 12 + 2 * 8


def test_pictures_that_are_not_in_memory_can_be_remembered(picture_folder: Path) -> None:
    files = sorted((picture_folder / "train").rglob("*.png"))
    lazy = FileSplit(files, torch.arange(24) // 6, size=(8, 8))
    memory = EpisodicMemory(2)
    memory.add(0, lazy, torch.Generator().manual_seed(0))
    assert memory.task(0).images.shape == (8, 3, 8, 8)
    assert memory.task(0).in_memory


def test_samples_keep_image_label_and_task_together() -> None:
    memory, parts = filled()
    assert (len(memory), memory.tasks) == (6 + 9, (0, 1))
    images, labels, ids = memory.sample(10, torch.Generator().manual_seed(1))
    assert len({int(value) for value in images[:, 0, 0, 0]}) == 10
    for image, label, index in zip(images, labels, ids, strict=True):
        value = int(image[0, 0, 0])
        assert index == (value >= 100)
        assert parts[int(index)].labels[value % 100] == label
    assert memory.sample(3, tasks=[1])[2].tolist() == [1, 1, 1]
    assert len(memory.sample(1000)[1]) == 15


def test_sampling_is_uniform_over_images() -> None:
    memory, _ = filled()
    generator = torch.Generator().manual_seed(0)
    shares = [memory.sample(5, generator)[2].float().mean().item() for _ in range(500)]
    assert abs(sum(shares) / 500 - 9 / 15) < 0.04


def test_shrinking_keeps_classes_equal() -> None:
    memory, _ = filled()
    before = memory.task(1)
    memory.shrink(2)
    assert memory.per_class == 2
    assert torch.bincount(memory.task(1).labels).tolist() == [2, 2, 2]
    kept = set(memory.task(1).images[:, 0, 0, 0].tolist())
    assert kept < set(before.images[:, 0, 0, 0].tolist())
    for wrong in (0, 3):
        with pytest.raises(DataError, match=f"from 2 to {wrong}"):
            memory.shrink(wrong)


def test_trimming_keeps_the_first_of_every_class() -> None:
    memory, _ = filled()
    before = {index: memory.task(index) for index in memory.tasks}
    memory.trim({0: [3, 1], 1: [0, 2, 3]})
    assert [torch.bincount(memory.task(index).labels).tolist() for index in (0, 1)] == [
        [3, 1],
        [0, 2, 3],
    ]
    for index, was in before.items():
        for label in set(memory.task(index).labels.tolist()):
            kept = memory.task(index).images[memory.task(index).labels == label]
            assert torch.equal(kept, was.images[was.labels == label][: len(kept)])
    assert memory.sample(100)[2].bincount().tolist() == [4, 5]


def test_state_goes_through_a_file_without_pickled_code() -> None:
    memory, _ = filled()
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    other = EpisodicMemory(1)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert (other.per_class, other.tasks, other.bytes) == (3, memory.tasks, memory.bytes)
    draws = [m.sample(7, torch.Generator().manual_seed(4)) for m in (memory, other)]
    for one, same in zip(*draws, strict=True):
        assert one.equal(same)


def test_a_foreign_state_changes_nothing() -> None:
    memory, _ = filled()
    for state in ({}, {"per_class": 1, "tasks": {0: {}}}, {"per_class": 1, "tasks": {0: 3}}):
        with pytest.raises(DataError, match="not the state of an episodic memory"):
            memory.load_state_dict(state)
    assert len(memory) == 15


def test_mistakes_are_named() -> None:
    memory, parts = filled()
    with pytest.raises(DataError, match="task 1 is in the episodic memory already"):
        memory.add(1, parts[1])
    with pytest.raises(DataError, match=r"task 7 is not in .* \[0, 1\]"):
        memory.task(7)
    with pytest.raises(DataError, match="no task was named"):
        memory.sample(2, tasks=[])
    with pytest.raises(DataError, match="empty"):
        EpisodicMemory(1).sample(2)
    with pytest.raises(DataError, match="at least 1"):
        EpisodicMemory(0)
