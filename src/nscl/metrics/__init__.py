"""How well a stream of tasks was learned and kept: the accuracy matrix and its figures.

``accuracy`` defines ACC, BWT and forgetting, ``seeds`` the mean over seeds. Needs the standard
library only and imports no other folder, so every folder may import this one.
"""

from nscl.metrics.accuracy import AccuracyMatrix
from nscl.metrics.errors import MetricError
from nscl.metrics.seeds import Summary, summary

__all__ = ["AccuracyMatrix", "MetricError", "Summary", "summary"]
