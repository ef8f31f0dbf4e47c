"""One process per run, also when processes die."""

import fcntl
import os
import signal
import socket
import threading
import time

import pytest

from nscl.results import RunLock, RunLockedError, WriteError

HOLD = """
import sys, time
from nscl.results import RunLock
with RunLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""

FORK = """
import os, sys, time
from nscl.results import RunLock
lock = RunLock(sys.argv[1])
lock.acquire()
ours, theirs = os.pipe()
worker = os.fork()
if worker == 0:
    os.write(theirs, b"held" if lock.held else b"free")
    time.sleep(60)
    os._exit(0)
print(worker, os.read(ours, 4).decode(), flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_by_name_and_let_in_afterwards(tmp_path, start):
    path = tmp_path / "run" / ".lock"
    path.parent.mkdir()
    child = start(HOLD, path)
    assert child.stdout.readline() == "held\n"
    with pytest.raises(RunLockedError) as caught, RunLock(path):
        pytest.fail("the lock was given twice")
    assert str(path.parent) in str(caught.value)
    assert f"process {child.pid} on {socket.gethostname()}" in str(caught.value)
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "released\n"
    with RunLock(path) as lock:
        assert lock.held
    assert not lock.held
    assert list(path.parent.iterdir()) == []


def test_a_killed_process_holds_nothing(tmp_path, start):
    child = start(HOLD, tmp_path / ".lock")
    assert child.stdout.readline() == "held\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    with RunLock(tmp_path / ".lock") as lock:
        assert lock.held


def test_a_forked_worker_does_not_keep_a_dead_run_locked(tmp_path, start):
    parent = start(FORK, tmp_path / ".lock")
    worker, in_the_worker = parent.stdout.readline().split()
    assert in_the_worker == "free"
    with pytest.raises(RunLockedError, match=f"process {parent.pid} "):
        RunLock(tmp_path / ".lock").acquire()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    os.kill(int(worker), 0)
    with RunLock(tmp_path / ".lock") as lock:
        assert lock.held


def test_one_process_cannot_hold_it_twice(tmp_path):
    lock = RunLock(tmp_path / ".lock")
    with lock:
        with pytest.raises(RunLockedError, match=f"process {os.getpid()} "):
            RunLock(tmp_path / ".lock").acquire()
        with pytest.raises(RunLockedError, match="this very object"):
            lock.acquire()
    lock.release()


def test_threads_of_one_process_exclude_each_other(tmp_path):
    """Each with an object of its own, as `nscl.run` makes it."""
    counter, failures = tmp_path / "counter", []
    counter.write_text("0")

    def count():
        done = 0
        while done < 20:
            try:
                with RunLock(tmp_path / ".lock"):
                    number = int(counter.read_text())
                    time.sleep(0.0005)
                    counter.write_text(str(number + 1))
                    done += 1
            except RunLockedError:
                time.sleep(0.0005)
            except Exception as problem:
                failures.append(problem)
                return

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert counter.read_text() == "60"


def test_another_thread_sees_that_it_is_held(tmp_path):
    seen = []
    with RunLock(tmp_path / ".lock") as lock:
        thread = threading.Thread(target=lambda: seen.append(lock.held))
        thread.start()
        thread.join()
    assert seen == [True]


def test_an_exception_gives_it_back(tmp_path):
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path / ".lock"):
        raise ZeroDivisionError
    with RunLock(tmp_path / ".lock") as lock:
        assert lock.held


def test_a_place_that_cannot_hold_a_lock_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"cannot write .*\.lock: File exists"):
        RunLock(tmp_path / "file" / ".lock").acquire()


def test_a_lock_file_without_a_name_still_refuses(tmp_path):
    with RunLock(tmp_path / ".lock") as lock:
        lock.path.write_text("")
        with pytest.raises(RunLockedError, match="has not written its name yet"):
            RunLock(tmp_path / ".lock").acquire()


def test_a_file_removed_between_open_and_lock_is_no_lock(tmp_path, monkeypatch):
    """The former holder leaves at the worst moment: the file just opened is no longer the one."""
    first, second = RunLock(tmp_path / ".lock"), RunLock(tmp_path / ".lock")
    first.acquire()
    flock = fcntl.flock

    def leave_then_lock(descriptor, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", leave_then_lock)
    with second, pytest.raises(RunLockedError):
        RunLock(tmp_path / ".lock").acquire()
    assert list(tmp_path.iterdir()) == []


COUNT = """
import sys, time
from pathlib import Path
from nscl.results import RunLock, RunLockedError
lock, counter, done = RunLock(sys.argv[1]), Path(sys.argv[2]), 0
while done < 50:
    try:
        with lock:
            number = int(counter.read_text())
            time.sleep(0.0005)
            counter.write_text(str(number + 1))
            done += 1
    except RunLockedError:
        time.sleep(0.0005)
"""


def test_never_two_at_once_although_the_file_comes_and_goes(tmp_path, start):
    (tmp_path / "counter").write_text("0")
    began = time.monotonic()
    children = [start(COUNT, tmp_path / ".lock", tmp_path / "counter") for _ in range(3)]
    for child in children:
        _, trouble = child.communicate(timeout=30)
        assert child.returncode == 0, trouble
    assert (tmp_path / "counter").read_text() == "150"
    assert time.monotonic() - began < 30
