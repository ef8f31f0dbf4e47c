import pytest
import torch
from torch import Tensor

from nscl.data import Batches, EpisodicMemory
from nscl.data.errors import DataError
from nscl.data.inputs import count
from nscl.data.tasks import Split, Task, TaskStream
from nscl.data.texts.split import TextSplit, trimmed

LENGTHS = (3, 1, 5, 2, 4, 2)


def texts(vocabulary: int = 20) -> TextSplit:
    """Row i has LENGTHS[i] tokens, all of them i + 1."""
    mask = torch.tensor([[int(at < n) for at in range(6)] for n in LENGTHS])
    ids = mask * (torch.arange(6)[:, None] + 1)
    inputs = {"input_ids": ids, "attention_mask": mask}
    return TextSplit(inputs, torch.arange(6) % 2, vocabulary=vocabulary)


def stream(*splits: Split) -> TaskStream:
    tasks = [Task(i, f"task {i}", s, s, (0, 1), ("no", "yes")) for i, s in enumerate(splits)]
    return TaskStream("mine", tuple(tasks), "task", (), ())


def test_a_batch_is_cut_to_its_longest_text() -> None:
    loader = Batches(texts(), batch_size=2, shuffle=False)
    batches = list(loader)
    assert [tuple(inputs["input_ids"].shape) for inputs, _ in batches] == [(2, 3), (2, 5), (2, 4)]
    for inputs, _ in batches:
        assert inputs["attention_mask"].shape == inputs["input_ids"].shape
        assert torch.equal(inputs["input_ids"] > 0, inputs["attention_mask"] == 1)


def test_a_shuffled_epoch_keeps_texts_and_labels_together() -> None:
    generator = torch.Generator().manual_seed(0)
    seen = []
    for inputs, labels in Batches(texts(), batch_size=4, generator=generator):
        for ids, label in zip(inputs["input_ids"], labels, strict=True):
            assert (int(ids[0]) - 1) % 2 == int(label)
            seen.append(int(ids[0]))
    assert sorted(seen) == [1, 2, 3, 4, 5, 6] != seen


def test_ranks_share_a_batch() -> None:
    parts = [Batches(texts(), batch_size=4, shuffle=False, shard=(rank, 2)) for rank in range(2)]
    first = [next(iter(part))[0]["input_ids"][:, 0].tolist() for part in parts]
    assert first == [[1, 3], [2, 4]]


def test_an_empty_part_of_a_batch_has_no_tokens() -> None:
    nothing = texts().take(torch.empty(0, dtype=torch.int64))
    assert count(trimmed(nothing)) == 0


def test_pictures_alone_are_augmented() -> None:
    with pytest.raises(DataError, match="'crop-flip' is for pictures; these are texts"):
        Batches(texts(), batch_size=2, augment="crop-flip")


def test_texts_have_no_images() -> None:
    with pytest.raises(DataError, match="not pictures: use inputs"):
        _ = texts().images
    with pytest.raises(DataError, match="input_shape is"):
        _ = stream(texts()).image_shape
    assert stream(texts()).input_shape == (6, 20)
    assert stream(texts()).kind == "texts"


def test_a_stream_has_one_kind_of_input() -> None:
    pictures = Split(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(4) % 2)
    with pytest.raises(DataError, match=r"task 'task 1' has images that are not \(6, 20\)"):
        stream(texts(), pictures)
    with pytest.raises(DataError, match="texts that are not"):
        stream(texts(), texts(vocabulary=30))


def test_an_episodic_memory_keeps_tokens_and_masks() -> None:
    memory = EpisodicMemory(per_class=2)
    generator = torch.Generator().manual_seed(0)
    for task in range(2):
        memory.add(task, texts(), generator)
    inputs, labels, owners = memory.sample(8, generator)
    assert isinstance(inputs, dict)
    assert set(inputs) == {"input_ids", "attention_mask"}
    assert torch.equal((inputs["input_ids"][:, 0] - 1) % 2, labels)
    assert sorted(owners.tolist()) == [0] * 4 + [1] * 4
    assert memory.bytes == 8 * (2 * 6 * 8 + 8)
    again = EpisodicMemory(per_class=1)
    again.load_state_dict(memory.state_dict())
    kept, loaded = memory.task(1).inputs, again.task(1).inputs
    assert isinstance(kept, dict)
    assert isinstance(loaded, dict)
    assert all(torch.equal(kept[name], loaded[name]) for name in kept)


def wrong(**changed: Tensor) -> TextSplit:
    good = texts()
    return TextSplit({**good.inputs, **changed}, good.labels, vocabulary=20)


def test_what_is_not_a_text_is_refused() -> None:
    with pytest.raises(DataError, match=r"outside 0\.\.19"):
        wrong(input_ids=torch.full((6, 6), 20))
    with pytest.raises(DataError, match="attention_mask must be int64"):
        wrong(attention_mask=torch.ones(6, 5, dtype=torch.int64))
    with pytest.raises(DataError, match="ones, at least one, and then zeros"):
        wrong(attention_mask=torch.zeros(6, 6, dtype=torch.int64))
    with pytest.raises(DataError, match="ones, at least one, and then zeros"):
        wrong(attention_mask=texts().inputs["attention_mask"].flip(1))
    with pytest.raises(DataError, match="texts are input_ids and attention_mask"):
        TextSplit({"input_ids": torch.zeros(2, 2).long()}, torch.zeros(2).long(), vocabulary=3)


def test_texts_are_held_out_as_images_are() -> None:
    held = stream(texts()).hold_out(0.3)[0]
    assert isinstance(held.test, TextSplit)
    assert (held.test.labels.tolist(), len(held.train)) == ([0, 1], 4)
    both = torch.cat([part.inputs["input_ids"][:, 0] for part in (held.train, held.test)])
    assert sorted(both.tolist()) == [1, 2, 3, 4, 5, 6]
