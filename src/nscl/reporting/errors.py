"""What can go wrong with a report, and what a report says about a picture it cannot draw."""

from nscl.errors import NsclError


class ReportError(NsclError, ValueError):
    """A report cannot be made or written: names the path, the reason and the way out."""


class MissingDataError(NsclError, LookupError):
    """A figure has no data: the report leaves it out and gives this reason."""
