import dataclasses
from pathlib import Path

import pytest
import torch

from nscl.data.errors import DataError
from nscl.data.images.files import FileSplit
from nscl.data.streams import for_scenario
from nscl.data.tasks import Split, Task, TaskStream, _held_out


def split(count: int = 4, classes: int = 2, shape: tuple[int, int, int] = (1, 2, 3)) -> Split:
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, *shape)
    return Split(images.contiguous(), torch.arange(count) % classes)


def task(index: int = 0, classes: int = 2) -> Task:
    names = tuple(f"c{label}" for label in range(classes))
    part = split(12, classes)
    return Task(index, f"t{index}", part, part, tuple(range(classes)), names)


def stream(*tasks: Task, scenario: str = "task") -> TaskStream:
    return TaskStream("s", tasks, scenario, (0.5,), (0.5,))  # type: ignore[arg-type]


def test_split_gathers_and_selects() -> None:
    part = split(10)
    rows = torch.tensor([7, 2])
    assert part.gather(rows)[:, 0, 0, 0].tolist() == [7, 2]
    chosen = part.select(rows)
    assert (len(chosen), chosen.labels.tolist()) == (2, [1, 0])
    assert (part.image_shape, part.bytes, part.in_memory) == ((1, 2, 3), 60, True)
    assert repr(part) == "Split(10 images (1, 2, 3))"
    assert part.to("cpu").images.equal(part.images)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (torch.zeros(4, 1, 2, 2), torch.zeros(4).long()),
        (torch.zeros(4, 2, 2, dtype=torch.uint8), torch.zeros(4).long()),
        (torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(4)),
        (torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(3).long()),
    ],
)
def test_what_is_no_split_is_refused(images: torch.Tensor, labels: torch.Tensor) -> None:
    with pytest.raises(DataError, match="must be"):
        Split(images, labels)


def test_things_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        split().labels = torch.zeros(1)  # type: ignore[misc]


def test_a_task_checks_its_labels() -> None:
    good = task()
    with pytest.raises(DataError, match=r"test labels outside 0\.\.1"):
        dataclasses.replace(good, test=split(4, classes=3))
    with pytest.raises(DataError, match="no training images"):
        dataclasses.replace(good, train=split().select(torch.tensor([], dtype=torch.int64)))
    with pytest.raises(DataError, match="not as many names"):
        dataclasses.replace(good, class_names=("only",))


def test_a_stream_is_a_sequence_of_tasks() -> None:
    tasks = (task(0), task(1, 3), task(2))
    whole = stream(*tasks)
    assert (len(whole), whole[1], list(whole)) == (3, tasks[1], list(tasks))
    assert whole.image_shape == (1, 2, 3)
    assert whole.classes_per_task == (2, 3, 2)
    assert list(whole.restrict(2)) == list(tasks[:2])
    for wrong in (0, 4):
        with pytest.raises(DataError, match=f"has 3 tasks; it cannot be restricted to {wrong}"):
            whole.restrict(wrong)


def test_a_stream_that_does_not_hold_together_is_refused() -> None:
    with pytest.raises(DataError, match="no tasks"):
        stream()
    with pytest.raises(DataError, match="one per channel"):
        TaskStream("s", (task(),), "task", (0.5, 0.5), (0.5, 0.5))
    other = dataclasses.replace(task(), test=split(12, 2, (3, 2, 3)))
    with pytest.raises(DataError, match="images that are not"):
        stream(other)
    with pytest.raises(DataError, match="one head needs equally many"):
        stream(task(0), task(1, 3), scenario="domain")
    with pytest.raises(DataError, match="'c0' is a class of several tasks"):
        stream(task(0), task(1), scenario="class")
    named = dataclasses.replace(task(1), class_names=("d0", "d1"))
    with pytest.raises(DataError, match=r"labels from 0 on, but a class stream .* from 2 on: see"):
        stream(task(0), named, scenario="class")


def pixels(*splits: Split) -> set[int]:
    return {int(image[0, 0, 0]) for part in splits for image in part.images}


@pytest.mark.parametrize(("share", "held"), [(0.01, 1), (0.25, 5), (0.5, 10), (0.94, 19)])
def test_a_share_of_every_class_is_held_out_in_place_of_the_test_images(
    share: float, held: int
) -> None:
    whole = stream(dataclasses.replace(task(), train=split(40)))
    part = whole.hold_out(share)[0]
    assert torch.bincount(part.test.labels).tolist() == [held, held]
    assert len(part.train) == 40 - 2 * held
    assert not pixels(part.train) & pixels(part.test)
    assert pixels(part.train, part.test) == set(range(40))
    assert pixels(whole.hold_out(share)[0].test) == pixels(part.test)


def test_what_is_held_out_depends_on_the_class_alone() -> None:
    here = dataclasses.replace(task(), train=split(40), classes=(3, 8))
    # The same two classes under each other's labels, as in another order of classes.
    swapped = Split(split(40).images, 1 - split(40).labels)
    there = dataclasses.replace(here, train=swapped, classes=(8, 3))
    found = [stream(each).hold_out(0.2)[0].test for each in (here, there)]
    assert pixels(found[0]) == pixels(found[1])
    others = stream(dataclasses.replace(here, classes=(4, 8))).hold_out(0.2)[0].test
    assert pixels(others) != pixels(found[0])


def test_what_is_held_out_is_the_same_where_labels_go_on_over_the_tasks() -> None:
    second = dataclasses.replace(task(1), train=split(40), class_names=("d0", "d1"))
    grown = for_scenario((task(0), second), "class")[1]
    found = [_held_out(each, 0.2).test for each in (second, grown)]
    assert pixels(found[0]) == pixels(found[1])
    assert torch.bincount(found[1].labels).tolist() == [0, 0, 4, 4]


def test_holding_out_leaves_something_to_train_on() -> None:
    few = stream(dataclasses.replace(task(), train=split(4)))
    assert len(few.hold_out(0.5)[0].train) == 2
    with pytest.raises(DataError, match=r"holding out 0.8 of 2 training images of class 'c0'"):
        few.hold_out(0.8)
    one = stream(dataclasses.replace(task(), train=split(2)))
    with pytest.raises(DataError, match="leaves none to train on"):
        one.hold_out(0.1)
    for wrong in (0.0, 1.0, -0.5):
        with pytest.raises(DataError, match="between 0 and 1"):
            few.hold_out(wrong)


def test_labels_are_numbered_for_one_growing_head_and_back() -> None:
    tasks = (task(0), dataclasses.replace(task(1, 3), class_names=("d0", "d1", "d2")))
    grown = for_scenario(tasks, "class")
    assert [part.first_label for part in grown] == [0, 2]
    assert grown[0] is tasks[0]
    assert grown[1].train.labels.tolist() == [2, 3, 4] * 4
    assert stream(*grown, scenario="class").classes_per_task == (2, 3)
    with pytest.raises(DataError, match="labels from 2 on, but a task stream needs them from 0"):
        stream(*grown)
    back = for_scenario(grown, "task")
    assert back[1].train.labels.equal(tasks[1].train.labels)


def test_pictures_stay_in_their_files_under_other_labels(tmp_path: Path) -> None:
    files = FileSplit([tmp_path / "a.png", tmp_path / "b.png"], torch.tensor([0, 1]), size=(4, 4))
    other = files.relabelled(files.labels + 5)
    assert (other.files, other.labels.tolist(), other.in_memory) == (files.files, [5, 6], False)
