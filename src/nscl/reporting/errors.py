"""Errors of reports, and the reason why a figure cannot be drawn."""

from nscl.errors import NsclError


class ReportError(NsclError, ValueError):
    """A report cannot be made or written: names the path, the reason and the way out."""


class NoFigureDataError(NsclError, LookupError):
    """A figure has no data: the report leaves it out and gives this reason."""
