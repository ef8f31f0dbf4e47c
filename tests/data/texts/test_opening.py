"""Options that only one kind of data has, and pools that must be pictures."""

from pathlib import Path

import pytest

from nscl.data import open_pool, open_stream
from nscl.data.disk.fetch import check
from nscl.data.errors import DataError, DataNotFoundError


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("split-digits-5", {"tokenizer": "words"}, "tokenizer is for texts; split-digits-5 has im"),
        ("split-digits-5", {"length": 9}, "length is for texts"),
        ("clinc150-10", {"size": 32}, "size is for pictures; clinc150-10 has texts: leave it out"),
        ("text:mails", {"max_bytes": 1}, "max_bytes is for pictures; text:mails has texts"),
        ("text:mails", {"length": 1}, "length must be at least 2 tokens, not 1"),
        ("text:mails", {"tokenizer": "mini-lm"}, "no tokenizer 'mini-lm' .did you mean 'minilm'"),
    ],
)
def test_options_of_the_other_kind(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_stream(name, **options)  # type: ignore[arg-type]


def test_texts_that_are_not_there_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="nscl data fetch clinc150-10"):
        open_stream("clinc150-10", data_dir=tmp_path)
    assert check("banking77-7", tmp_path).download_bytes == 839_073 + 239_961 + 2_036
    with pytest.raises(DataError, match="text:mails is your own folder"):
        check("text:mails")


def test_texts_are_no_pool_of_pictures() -> None:
    with pytest.raises(DataError, match="clinc150 cannot be an unlabelled pool: it has texts"):
        open_pool("clinc150-10", like=open_stream("split-digits-5"), size=1)


def test_the_real_files_have_the_pinned_checksums(real_data: Path) -> None:
    assert check("clinc150-10", real_data).state == "verified"
    assert check("banking77-7", real_data).state == "verified"
