"""What a run leaves on disk, written so that it cannot be lost and read without torch."""

from nscl.results.atomic import replacing, write_bytes, write_json, write_text
from nscl.results.collect import Found, Skipped, find_runs
from nscl.results.config_file import ConfigFile
from nscl.results.environment import fingerprint
from nscl.results.errors import (
    FormatError,
    RunFinishedError,
    RunLockedError,
    RunMismatchError,
    WriteError,
)
from nscl.results.lock import RunLock
from nscl.results.metrics_log import MetricsLog, read_metrics
from nscl.results.naming import config_hash, run_name, slug
from nscl.results.remarks import by_remark, remarks
from nscl.results.result import Result
from nscl.results.run_directory import RunDirectory

__all__ = [
    "ConfigFile",
    "FormatError",
    "Found",
    "MetricsLog",
    "Result",
    "RunDirectory",
    "RunFinishedError",
    "RunLock",
    "RunLockedError",
    "RunMismatchError",
    "Skipped",
    "WriteError",
    "by_remark",
    "config_hash",
    "find_runs",
    "fingerprint",
    "read_metrics",
    "remarks",
    "replacing",
    "run_name",
    "slug",
    "write_bytes",
    "write_json",
    "write_text",
]
