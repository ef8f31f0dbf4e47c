"""Means over steps: weighted by samples, the same after a stop and a resume."""

import torch

from nscl.methods.running_averages import RunningAverages


def test_averages_stopped_half_way_end_with_the_same_means() -> None:
    whole, first, second = RunningAverages(), RunningAverages(), RunningAverages()
    for averages in (whole, first):
        averages.add(3, kd=torch.tensor(1.0), other=5.0)
    second.load_state_dict(first.state_dict())
    for averages in (whole, second):
        averages.add(1, kd=3.0)
    assert second.means() == whole.means() == {"kd": 1.5, "other": 5.0}
    assert second.read() == whole.read() == {"kd": 1.5, "other": 5.0}
    assert whole.read() == {}


def test_checkpoints_that_count_steps_are_read() -> None:
    """As GEM, A-GEM and MEGA wrote them at first."""
    averages = RunningAverages()
    averages.load_state_dict({"steps": 4, "sums": {"angle": 2.0}})
    averages.add(1, angle=3.0)
    assert averages.means() == {"angle": 1.0}
