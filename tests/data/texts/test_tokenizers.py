import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nscl.data.errors import DataError
from nscl.data.texts.tokenizers import Words, open_tokenizer
from nscl.errors import NsclError


@given(st.lists(st.text(), min_size=1), st.integers(2, 9), st.integers(3, 50))
def test_every_text_has_tokens_then_padding(texts: list[str], length: int, vocabulary: int) -> None:
    tokens = Words(vocabulary)(texts, length)
    ids, mask = tokens["input_ids"], tokens["attention_mask"]
    assert ids.shape == mask.shape == (len(texts), length)
    assert 0 <= int(ids.min()) <= int(ids.max()) < vocabulary
    assert torch.equal(mask == 1, ids != 0)  # 0 is padding and never a word
    assert bool((mask.diff(dim=1) <= 0).all())
    assert bool((ids[:, 0] == 1).all())  # so that an empty text has a token


def test_a_word_has_one_number_wherever_it_stands() -> None:
    tokens = Words()(["Freeze my card.", "my CARD, freeze"], 8)["input_ids"]
    first, second = tokens[0, 1:5].tolist(), tokens[1, 1:5].tolist()
    assert sorted((first[0], *first[1:3])) == sorted((second[3], *second[:2]))
    assert first[3] != second[2]  # a full stop and a comma


def test_numbers_are_the_same_in_every_process() -> None:
    code = "from nscl.data.texts.tokenizers import Words; print(Words()(['a b'], 3)['input_ids'])"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert shown.strip() == str(Words()(["a b"], 3)["input_ids"])


def test_names() -> None:
    assert open_tokenizer("words").vocabulary == 4096
    assert open_tokenizer("words:99").vocabulary == 99
    with pytest.raises(DataError, match=r"no tokenizer 'wrods' \(did you mean 'words'\?\)"):
        open_tokenizer("wrods")
    with pytest.raises(DataError, match="words:N needs a number above 2"):
        open_tokenizer("words:two")


def test_a_tokenizer_that_is_not_there() -> None:
    with pytest.raises(NsclError, match="hf:no/such: no/such is not a folder; name a folder") as e:
        open_tokenizer("hf:no/such")
    assert "\n" not in str(e.value)
