"""CLINC150 and Banking77: small fakes in their layout, and the real files where they are."""

import json
from pathlib import Path

import numpy as np
import pytest

from nscl.data import open_stream
from nscl.data.errors import CorruptDataError
from nscl.data.texts.intents import read_banking77, read_clinc150

DOMAINS = {"bank": ["pay", "owe"], "home": ["play", "stop"]}


@pytest.fixture
def clinc(tmp_path: Path) -> Path:
    """Texts say their intent; validation and out-of-scope texts must not be read."""
    intents = [intent for own in DOMAINS.values() for intent in reversed(own)]
    parts = {
        part: [[f"{intent} {part} {i}", intent] for i in range(n) for intent in intents]
        for part, n in (("train", 3), ("val", 2), ("test", 1))
    }
    parts["oos_train"] = [["what is the sky", "oos"]]
    (tmp_path / "data_full.json").write_text(json.dumps(parts))
    (tmp_path / "domains.json").write_text(json.dumps(DOMAINS))
    return tmp_path


def test_clinc150_has_its_intents_in_the_order_of_the_domains(clinc: Path) -> None:
    raw = read_clinc150(clinc)
    assert raw.class_names == ("pay", "owe", "play", "stop")
    assert [(g.name, g.classes) for g in raw.groups] == [("bank", (0, 1)), ("home", (2, 3))]
    assert len(raw.train.texts) == 12
    assert len(raw.test.texts) == 4
    for part, name in ((raw.train, "train"), (raw.test, "test")):
        for text, label in zip(part.texts, part.labels, strict=True):
            assert text.split()[:2] == [raw.class_names[label], name]


def test_another_layout_is_refused(clinc: Path) -> None:
    (clinc / "data_full.json").write_text('{"train": [["a", "pay"]]}')
    with pytest.raises(CorruptDataError, match=r"has not CLINC150's layout \(KeyError\('test'\)\)"):
        read_clinc150(clinc)
    (clinc / "data_full.json").write_text("{")
    with pytest.raises(CorruptDataError, match=r"data_full\.json is not JSON"):
        read_clinc150(clinc)


def test_banking77_has_its_intents_in_the_order_of_the_categories(tmp_path: Path) -> None:
    (tmp_path / "categories.json").write_text('["top_up", "atm"]')
    (tmp_path / "train.csv").write_text('text,category\n"cash, please",atm\nmore money,top_up\n')
    (tmp_path / "test.csv").write_text("text,category\nwhere,atm\n")
    raw = read_banking77(tmp_path)
    assert raw.class_names == ("top_up", "atm")
    assert raw.train.texts == ("cash, please", "more money")
    assert raw.train.labels.tolist() == [1, 0]
    assert raw.groups == ()
    (tmp_path / "test.csv").write_text("text,category\nwhere,atm\nwho,else\n")
    with pytest.raises(CorruptDataError, match=r"test.csv, line 3: no category 'else'"):
        read_banking77(tmp_path)


def test_the_real_clinc150(real_data: Path) -> None:
    stream = open_stream("clinc150-10", data_dir=real_data)
    names = list(json.loads((real_data / "clinc150" / "domains.json").read_text()))
    assert [task.name for task in stream] == names
    assert stream.classes_per_task == (15,) * 10
    for task in stream:
        assert np.bincount(task.train.labels).tolist() == [100] * 15
        assert np.bincount(task.test.labels).tolist() == [30] * 15
    assert sorted(label for task in stream for label in task.classes) == list(range(150))


def test_a_random_order_shuffles_domains_and_keeps_their_intents(real_data: Path) -> None:
    natural = {t.name: t.class_names for t in open_stream("clinc150-10", data_dir=real_data)}
    shuffled = open_stream("clinc150-10", data_dir=real_data, order="random", seed=1)
    assert [task.name for task in shuffled] != list(natural)
    assert {task.name: task.class_names for task in shuffled} == natural
    pairs = open_stream("clinc150-10", data_dir=real_data, order="random", seed=1, tasks=5)
    assert pairs.classes_per_task == (30,) * 5
    assert pairs[0].class_names == shuffled[0].class_names + shuffled[1].class_names


def test_the_real_banking77(real_data: Path) -> None:
    stream = open_stream("banking77-7", data_dir=real_data)
    assert stream.classes_per_task == (11,) * 7
    assert stream[0].class_names[:2] == ("card_arrival", "card_linking")
    assert sum(len(task.train) for task in stream) == 10_003
    assert all(np.bincount(task.test.labels).tolist() == [40] * 11 for task in stream)
