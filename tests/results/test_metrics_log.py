"""The append-only log of a run, killed and resumed."""

import json
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
)  # fmt: skip


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
        log.append({"after": "the cut"})
    assert list(read_metrics(path)) == [*records[:kept], {"after": "the cut"}]


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
        log.append({"next": n})
    with MetricsLog(folder / "short") as log:
        log.append({"next": n})
    assert (folder / "long").read_bytes() == (folder / "short").read_bytes()


def test_every_record_is_readable_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append({"epoch": 1})
        assert list(read_metrics(path)) == [{"epoch": 1}]
        log.append({"epoch": 2})
        log.sync()
        assert list(read_metrics(path)) == [{"epoch": 1}, {"epoch": 2}]


def test_a_killed_writer_loses_no_record_it_reported(tmp_path, start):
    path = tmp_path / "metrics.jsonl"
    child = start(
        "import itertools, sys\n"
        "from nscl.results import MetricsLog\n"
        "log = MetricsLog(sys.argv[1])\n"
        "for i in itertools.count():\n"
        "    log.append({'i': i, 'text': 'x' * 500}); print(i, flush=True)\n",
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
    said, trouble = child.communicate(timeout=30)
    assert said.startswith(f"3 cannot write {path}: File too large"), trouble
    assert path.read_bytes() == (json.dumps({"text": "x" * 289}).encode() + b"\n") * 3


def test_a_checkpoint_that_counts_more_than_there_is_says_so(tmp_path):
    with MetricsLog(tmp_path / "m") as log:
        log.append({})
        for impossible in (2, -1):
            with pytest.raises(
                FormatError, match=f"holds 1 records, the checkpoint counts {impossible}"
            ):
                log.truncate_to(impossible)


def test_what_is_no_record_is_refused_by_line(tmp_path):
    path = tmp_path / "m"
    path.write_text('{"a": 1}\nnonsense\n')
    with pytest.raises(FormatError, match="m line 2 is not JSON"):
        list(read_metrics(path))
    path.write_text("[1]\n")
    with pytest.raises(FormatError, match="line 1 is not a JSON object but a list"):
        list(read_metrics(path))
    with pytest.raises(FormatError, match=r"cannot read .*: No such file"):
        list(read_metrics(tmp_path / "missing"))


def test_nan_is_refused_and_nothing_is_written(tmp_path):
    with MetricsLog(tmp_path / "m") as log:
        with pytest.raises(FormatError, match="not standard JSON"):
            log.append({"loss": float("nan")})
        assert log.records == 0
    assert (tmp_path / "m").read_bytes() == b""


def test_a_log_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(WriteError, match=r"cannot write .*nowhere"):
        MetricsLog(tmp_path / "nowhere" / "m")
