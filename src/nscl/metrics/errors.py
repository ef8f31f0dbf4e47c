"""The error of metrics."""

from nscl.errors import NsclError


class MetricError(NsclError, ValueError):
    """A metric cannot be computed from its numbers: names the entry and the reason."""
