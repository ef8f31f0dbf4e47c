"""Published full-scale numbers, shown beside ours in columns of their own.

ACC and BWT on the paper's three benchmarks: ResNet-18, 80 epochs, a GPU. The settings of the
baselines were not published: take their numbers as orders of magnitude, not as targets.
"""

from typing import NamedTuple

PAPER = "Wang et al., CVPR 2021, tables of ACC and BWT"
ADNS = "Kong et al., ECCV 2022, the authors' released logs, mean of 5, 5 and 3 runs"

BENCHMARKS = ("split-cifar100-10", "split-cifar100-20", "split-tinyimagenet-25")


class Published(NamedTuple):
    """One published pair, in percent and points, and its source."""

    acc: float
    bwt: float
    source: str


_TABLE: dict[str, tuple[tuple[float, float] | None, ...]] = {
    "ewc": ((70.77, -2.83), (71.66, -3.72), (52.33, -6.17)),
    "mas": ((66.93, -4.03), (63.84, -6.29), (47.96, -7.04)),
    "muc-mas": ((63.73, -3.38), (67.22, -5.72), (41.18, -4.03)),
    "si": ((60.57, -5.17), (59.76, -8.62), (45.27, -4.45)),
    "lwf": ((70.70, -6.27), (74.38, -9.11), (56.57, -11.19)),
    "instaparam": ((47.84, -11.92), (51.04, -4.92), (34.64, -10.05)),
    "gd-wild": ((71.27, -18.24), (77.16, -14.85), (42.74, -34.58)),
    "gem": ((49.48, 2.77), (68.89, -1.20), None),
    "a-gem": ((49.57, -1.13), (61.91, -6.88), (53.32, -7.68)),
    "mega": ((54.17, -2.19), (64.98, -5.13), (57.12, -5.90)),
    "owm": ((68.89, -1.88), (68.47, -3.37), (49.98, -3.64)),
    "adam-nscl": ((73.77, -1.60), (75.95, -3.66), (58.28, -6.05)),
    "adns": ((77.21, -2.32), (77.33, -3.25), (59.77, -4.58)),
}

#: The order of rows: bounds first, then as the paper lists them, then the rest by name.
ORDER = ("finetune", "frozen", "independent", *_TABLE)


def published(benchmark: str, method: str) -> Published | None:
    """Return the published pair of a method on a benchmark, if there is one.

    >>> published("split-cifar100-10", "adam-nscl").acc
    73.77
    """
    if benchmark not in BENCHMARKS or method not in _TABLE:
        return None
    pair = _TABLE[method][BENCHMARKS.index(benchmark)]
    return Published(*pair, ADNS if method == "adns" else PAPER) if pair else None


def rank(method: str) -> tuple[int, str]:
    """Sort key of a method's row; joint training, the upper bound, comes last."""
    if method == "joint":
        return len(ORDER) + 1, method
    return (ORDER.index(method) if method in ORDER else len(ORDER)), method
