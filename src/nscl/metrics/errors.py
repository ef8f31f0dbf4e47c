"""What can be wrong with the numbers a metric is given."""

from nscl.errors import NsclError


class MetricError(NsclError, ValueError):
    """A metric was asked of numbers that do not allow it: names the entry and the reason."""
