"""A first signal is remembered, a second one interrupts, and handlers are restored."""

import os
import signal
import threading

import pytest

from nscl.training.process.device import Ranks
from nscl.training.process.interrupt import StopSignal


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_remembered_and_gives_the_exit_code(number: int, code: int) -> None:
    before = signal.getsignal(number)
    with StopSignal() as stop:
        assert not stop.reached(Ranks())
        os.kill(os.getpid(), number)
        assert stop.reached(Ranks())
    assert stop.exit_code == code
    assert signal.getsignal(number) is before


def test_a_second_signal_interrupts_at_once() -> None:
    with StopSignal():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with StopSignal() as stop:
            seen.extend([signal.getsignal(signal.SIGINT), stop.received])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, None]
