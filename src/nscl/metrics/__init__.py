"""How well a stream of tasks was learned and kept: the accuracy matrix and its figures."""

from nscl.metrics.accuracy import AccuracyMatrix
from nscl.metrics.errors import MetricError
from nscl.metrics.seeds import Summary, summary

__all__ = ["AccuracyMatrix", "MetricError", "Summary", "summary"]
