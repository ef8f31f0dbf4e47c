"""``text:PATH``: which labels make which tasks, and what is refused."""

from pathlib import Path

import pytest

from nscl.data import open_stream
from nscl.data.errors import DataError, DataNotFoundError
from nscl.data.tasks import TaskStream
from nscl.data.texts.split import MASK

LABELS = ("ask", "buy", "cry", "die")


def write(folder: Path, *, tasks: bool = False, name: str = "{}.csv") -> Path:
    folder.mkdir(exist_ok=True)
    for part, count in (("train", 6), ("test", 2)):
        lines = ["text,label,task" if tasks else "text,label"]
        for label in LABELS:
            own = f",{'later' if label < 'c' else 'first'}" if tasks else ""
            lines += [f"{label} number {i},{label}{own}" for i in range(count)]
        lines[1:] = reversed(lines[1:]) if tasks else lines[1:]
        (folder / name.format(part)).write_text("\n".join(lines) + "\n")
    return folder


def open_texts(folder: Path, **options: object) -> TaskStream:
    return open_stream(f"text:{folder}", **options)  # type: ignore[arg-type]


def test_labels_are_divided_into_tasks(tmp_path: Path) -> None:
    stream = open_texts(write(tmp_path / "mails"), tasks=2, length=8)
    assert [task.class_names for task in stream] == [("ask", "buy"), ("cry", "die")]
    assert [len(task.train) for task in stream] == [12, 12]
    assert stream[1].test.labels.tolist() == [0, 0, 1, 1]
    assert stream.input_shape == (8, 4096)
    # A beginning, and three words.
    assert stream[0].train.inputs[MASK].sum(1).tolist() == [4] * 12  # type: ignore[index,call-overload]


def test_the_number_of_tasks_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"give the number of tasks of text:.*: 1, 2, 4"):
        open_texts(write(tmp_path / "mails"))
    with pytest.raises(DataError, match="4 classes cannot be split into 3 equal tasks"):
        open_texts(write(tmp_path / "mails"), tasks=3)


def test_a_task_column_decides(tmp_path: Path) -> None:
    folder = write(tmp_path / "mails", tasks=True)
    stream = open_texts(folder)
    assert [task.name for task in stream] == ["first", "later"]  # as they first appear
    assert [task.class_names for task in stream] == [("cry", "die"), ("ask", "buy")]
    assert [task.classes for task in stream] == [(0, 1), (2, 3)]
    assert [task.name for task in open_texts(folder, tasks=2)] == ["first", "later"]
    with pytest.raises(DataError, match=r"names its 2 tasks: leave out --data.tasks 4"):
        open_texts(folder, tasks=4)
    orders = {tuple(t.name for t in open_texts(folder, order="random", seed=s)) for s in range(9)}
    assert orders == {("first", "later"), ("later", "first")}


def test_a_domain_stream_has_the_same_labels_in_every_task(tmp_path: Path) -> None:
    folder = write(tmp_path / "mails", tasks=True)
    with pytest.raises(DataError, match="task 'later' has other labels than 'first'"):
        open_texts(folder, scenario="domain")
    for part in ("train", "test"):
        rows = [f"{word},{label},{day}" for day in "ab" for label in "xy" for word in ("u", "v")]
        (folder / f"{part}.csv").write_text("\n".join(["text,label,task", *rows]))
    stream = open_texts(folder, scenario="domain")
    assert [task.class_names for task in stream] == [("x", "y"), ("x", "y")]
    assert stream[1].train.labels.tolist() == [0, 0, 1, 1]


def test_what_only_the_test_file_has_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "mails")
    with (folder / "test.csv").open("a") as file:
        file.write("what,else\n")
    with pytest.raises(DataError, match=r"test.csv, line 10: the label 'else' is in the test file"):
        open_texts(folder, tasks=2)
    folder = write(tmp_path / "mails", tasks=True)
    with (folder / "test.csv").open("a") as file:
        file.write("what,ask,first\n")
    with pytest.raises(DataError, match="line 10: the label 'ask' of task 'first' is in the test"):
        open_texts(folder)


def test_numbers_are_ordered_as_numbers(tmp_path: Path) -> None:
    for part in ("train", "test"):
        rows = "".join(f'{{"text": "a", "label": {n}}}\n' for n in (10, 9, 100, 1))
        (tmp_path / f"{part}.jsonl").write_text(rows)
    assert open_texts(tmp_path, tasks=1)[0].class_names == ("1", "9", "10", "100")


def test_a_folder_without_both_files(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"has no train\.csv \(or \.tsv, \.jsonl, \.json\)"):
        open_texts(tmp_path, tasks=1)
    with pytest.raises(DataNotFoundError, match="is not a folder with train"):
        open_texts(tmp_path / "none", tasks=1)
    folder = write(tmp_path / "mails")
    write(tmp_path / "mails", name="{}.tsv")
    with pytest.raises(DataError, match=r"has train\.csv and train\.tsv: keep one"):
        open_texts(folder, tasks=1)
