"""Notices to the user: something takes long, or differs from what they may expect."""

import logging
from collections.abc import Callable

Notify = Callable[[str], None]
"""Receives one line of text."""

_logger = logging.getLogger("nscl.data")


def log_notice(message: str) -> None:
    """Write the notice to the ``nscl.data`` logger: the default where no callback is given."""
    _logger.info(message)
