"""Mean and spread over seeds."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.metrics import MetricError, summary


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_summary_equals_the_textbook(values):
    mean, std = summary(values)
    slow_mean = sum(values) / len(values)
    slow_std = math.sqrt(sum((v - slow_mean) ** 2 for v in values) / (len(values) - 1))
    assert mean == pytest.approx(slow_mean, abs=1e-9)
    assert std == pytest.approx(slow_std, abs=1e-9)


def test_one_seed_has_no_spread():
    assert summary([73.77]) == (73.77, None)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_what_cannot_be_summarised_is_refused(values):
    with pytest.raises(MetricError):
        summary(values)


def test_metrics_need_neither_torch_nor_numpy():
    code = "import sys, nscl.metrics; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
