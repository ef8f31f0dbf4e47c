"""Ctrl-C and SIGTERM: finish the step, save, show how to resume; a second one exits at once."""

import signal
from types import FrameType
from typing import Any, Self

from nscl.errors import NsclError
from nscl.training.process.device import Ranks


class InterruptedRunError(NsclError):
    """A run was asked to stop and can be continued; ``exit_code`` is 130 or 143."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StopSignal:
    """Remembers that the user or the system asked for a stop."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._previous[number] = signal.signal(number, self._note)
            except ValueError:  # not in the main thread, where signals are handled
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number

    def reached(self, ranks: Ranks) -> bool:
        """Whether it reached any process of the run: all of them stop after the same step."""
        number = ranks.largest(self.received or 0)
        if number:
            self.received = number
        return number > 0

    @property
    def exit_code(self) -> int:
        """What the shell expects of an interrupted process."""
        return 128 + (self.received or signal.SIGINT)
