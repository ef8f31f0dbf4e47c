"""The files of a run on disk: written atomically under a lock, read without torch.

``run_directory`` is the folder of a run, ``records`` has its files, ``collect`` finds runs. File
formats and names of runs must not change.
"""

from nscl.results.collect import Found, Skipped, find_runs
from nscl.results.environment import fingerprint, machine_load
from nscl.results.errors import (
    FormatError,
    RunFinishedError,
    RunLockedError,
    RunMismatchError,
    WriteError,
)
from nscl.results.lock import RunLock
from nscl.results.naming import (
    config_hash,
    flat,
    preset_of_record,
    recorded_preset,
    run_name,
    slug,
)
from nscl.results.records.config_file import ConfigFile
from nscl.results.records.metrics_log import MetricsLog
from nscl.results.records.metrics_record import read_metrics
from nscl.results.records.remarks import AT_CHANCE, by_remark, has_unlearned_tasks, remarks
from nscl.results.records.result import Result
from nscl.results.run_directory import RunDirectory
from nscl.results.writing import open_atomic, write_bytes, write_json, write_text

__all__ = [
    "AT_CHANCE",
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
    "flat",
    "has_unlearned_tasks",
    "machine_load",
    "open_atomic",
    "preset_of_record",
    "read_metrics",
    "recorded_preset",
    "remarks",
    "run_name",
    "slug",
    "write_bytes",
    "write_json",
    "write_text",
]
