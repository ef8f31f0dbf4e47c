from pathlib import Path

import pytest

from nscl.data.errors import CorruptDataError, DataError
from nscl.data.texts.tables import Row, read_table

GOOD = 'text,label,extra\nhello there,greet,1\n"one, two\nthree",count,2\n\nbye,leave,3\n'


def table(folder: Path, content: str | bytes, name: str = "train.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_csv_may_have_quoted_lines_other_columns_and_empty_lines(tmp_path: Path) -> None:
    assert read_table(table(tmp_path, GOOD)) == [
        Row("hello there", "greet", "", 2),
        Row("one, two\nthree", "count", "", 3),
        Row("bye", "leave", "", 6),
    ]


def test_tabs_byte_order_marks_and_windows_line_ends(tmp_path: Path) -> None:
    content = "\ufefftext\tlabel\ttask\r\na, b\tx\tone\r\n"
    assert read_table(table(tmp_path, content, "train.tsv")) == [Row("a, b", "x", "one", 2)]


def test_json_lines(tmp_path: Path) -> None:
    content = '{"text": "a\\nb", "label": 3}\n\n{"text": "c", "label": "4", "task": 1}\n'
    path = table(tmp_path, content.replace("3}", '3, "task": 0}'), "train.jsonl")
    assert read_table(path) == [Row("a\nb", "3", "0", 1), Row("c", "4", "1", 3)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na,x\nb, c,y\n", r"train.csv, line 3: 3 fields where the header has 2 \(tex"),
        ("text,label\na,x\nb\n", "train.csv, line 3: 1 fields where"),
        ('text,label\na,x\n"b,y\nc,z\n', "train.csv, line 3: not a row of CSV"),
        ('text,label\n"a"b,x\n', "train.csv, line 2: not a row of CSV"),
        ("text,intent\na,x\n", "train.csv, line 2: no 'label'; it has text, intent"),
        ("text,label\na,x\n ,y\n", "train.csv, line 3: 'text' is empty"),
        ("text,label\na,\n", "train.csv, line 2: 'label' is empty"),
        (b"text,label\na,x\n\xff\xfe,y\n", "train.csv, line 3: not UTF-8"),
        ("text,label,task\na,x,1\nb,y,\n", "train.csv, line 3: no task, which other rows have"),
        ("text,label\n", "train.csv has no rows"),
        ("", "train.csv has no rows"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message) as found:
        read_table(table(tmp_path, content))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a", "label": "x"}\n{"text": "b"\n', "train.jsonl, line 2: not JSON"),
        ('["a", "x"]\n', "train.jsonl, line 1: not an object"),
        ('{"text": "a"}\n', "train.jsonl, line 1: no 'label'; it has text"),
        ('{"text": ["a"], "label": "x"}\n', "line 1: 'text' is empty or not a text"),
    ],
)
def test_a_line_that_is_not_a_text_is_named(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_table(table(tmp_path, content, "train.jsonl"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / "none.csv")
    assert issubclass(CorruptDataError, DataError)
