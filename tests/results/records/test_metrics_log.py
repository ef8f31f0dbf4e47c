"""The append-only log of a run, killed and resumed."""

import json
import re
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.results import FormatError, MetricsLog, WriteError, read_metrics

plain = st.dictionaries(
    st.text(max_size=4),
    st.none() | st.booleans() | st.integers() | st.text(max_size=6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(st.floats(0, 1), max_size=3),
    max_size=4,
).map(lambda record: {**record, "kind": "other"})  # fmt: skip


AFTER = {"kind": "after the cut"}


@given(st.lists(plain, max_size=8), st.data())
def test_cut_anywhere_it_continues_after_the_last_whole_record(tmp_path_factory, records, data):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    with MetricsLog(path) as log:
        for record in records:
            log.append(record)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    assert list(read_metrics(path)) == records[:kept]
    with MetricsLog(path) as log:
        assert log.records == kept
        log.append(AFTER)
    assert list(read_metrics(path)) == [*records[:kept], AFTER]


@given(st.lists(plain, max_size=8), st.data())
def test_truncated_to_n_it_equals_a_log_that_never_had_more(tmp_path_factory, records, data):
    folder = tmp_path_factory.mktemp("log")
    n = data.draw(st.integers(0, len(records)))
    for name, count in (("long", len(records)), ("short", n)):
        with MetricsLog(folder / name) as log:
            for record in records[:count]:
                log.append(record)
    with MetricsLog(folder / "long") as log:
        log.truncate_to(n)
        assert log.records == n
        log.append({"kind": "next", "n": n})
    with MetricsLog(folder / "short") as log:
        log.append({"kind": "next", "n": n})
    assert (folder / "long").read_bytes() == (folder / "short").read_bytes()


def test_every_record_is_readable_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append({"kind": "1"})
        assert list(read_metrics(path)) == [{"kind": "1"}]
        log.append({"kind": "2"})
        log.sync()
        assert list(read_metrics(path)) == [{"kind": "1"}, {"kind": "2"}]


def test_a_killed_writer_loses_no_record_it_reported(tmp_path, start):
    path = tmp_path / "metrics.jsonl"
    child = start(
        "import itertools, sys\n"
        "from nscl.results import MetricsLog\n"
        "log = MetricsLog(sys.argv[1])\n"
        "for i in itertools.count():\n"
        "    log.append({'kind': 'x', 'i': i, 'text': 'x' * 500}); print(i, flush=True)\n",
        path,
    )
    last = 0
    while last < 200:
        last = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    child.wait()
    found = [record["i"] for record in read_metrics(path)]
    assert len(found) > last
    assert found == list(range(len(found)))


def test_a_full_disk_keeps_the_whole_records_and_no_half(tmp_path, start):
    path = tmp_path / "metrics.jsonl"
    child = start(
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from nscl.results import MetricsLog, WriteError\n"
        "log = MetricsLog(sys.argv[1])\n"
        "try:\n"
        "    while True: log.append({'text': 'x' * 289})\n"
        "except WriteError as error:\n"
        "    print(log.records, error)\n",
        path,
    )
    output, trouble = child.communicate(timeout=30)
    assert output.startswith(f"3 cannot write {path}: File too large"), trouble
    assert path.read_bytes() == (json.dumps({"text": "x" * 289}).encode() + b"\n") * 3


def test_a_checkpoint_that_counts_more_than_there_is_says_so(tmp_path):
    with MetricsLog(tmp_path / "m") as log:
        log.append({})
        for impossible in (2, -1):
            with pytest.raises(
                FormatError, match=f"holds 1 records, the checkpoint counts {impossible}"
            ):
                log.truncate_to(impossible)


EPOCH = {"kind": "epoch", "task": 0, "phase": "train", "steps": 3, "seconds": 1.5}
GOOD = json.dumps(EPOCH).encode()
DAMAGED = [
    (b"nonsense", "is truncated or not JSON: Expecting value: line 1 column 1"),
    (b"\x00\x00\xff", "is truncated or not JSON: "),
    (b"[1]", "is not a JSON object but a list"),
    (b"{}", "is incomplete: it lacks kind"),
    (json.dumps(EPOCH | {"task": "one"}).encode(), "task must be a whole number, got 'one'"),
    (GOOD.replace(b"1.5", b"NaN"), "seconds must be a finite number, got nan"),
    (b'{"kind": "epoch", "task": 1}', "is incomplete: it lacks phase, seconds, steps"),
    (b'{"kind": "task", "task": 1, "seconds": 2}', "is incomplete: it lacks accuracies"),
]


@pytest.mark.parametrize(("line", "reason"), DAMAGED)
def test_a_damaged_line_is_named_when_read_and_when_a_run_resumes(tmp_path, line, reason):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(GOOD + b"\n" + line + b"\n" + GOOD + b"\n")
    with pytest.raises(FormatError) as read:
        list(read_metrics(path))
    with MetricsLog(path) as log, pytest.raises(FormatError) as resumed:
        log.truncate_to(3)
    assert str(read.value) == str(resumed.value)
    assert re.match(rf"{re.escape(str(path))} line 2:? {re.escape(reason)}", str(read.value))
    assert str(read.value).endswith("move the run's folder away and start the run again")
    assert "\n" not in str(read.value)


def test_a_damaged_line_after_the_checkpoint_is_cut_off_unread(tmp_path):
    """A power cut may leave zeros after the records that were synced for the checkpoint."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(GOOD + b"\n\x00\x00\n\x00")
    with MetricsLog(path) as log:
        log.truncate_to(1)
        log.append(AFTER)
    assert list(read_metrics(path)) == [EPOCH, AFTER]


def test_nan_is_refused_and_nothing_is_written(tmp_path):
    with MetricsLog(tmp_path / "m") as log:
        with pytest.raises(FormatError, match="not standard JSON"):
            log.append({"loss": float("nan")})
        assert log.records == 0
    assert (tmp_path / "m").read_bytes() == b""


def test_a_log_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(WriteError, match=r"cannot write .*nowhere"):
        MetricsLog(tmp_path / "nowhere" / "m")
