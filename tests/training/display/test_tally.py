"""Sums of an epoch become means, also before the first sample."""

from nscl.training.display.tally import Tally


def test_means_are_per_sample() -> None:
    assert Tally(loss=6.0, hits=3, seen=4).means() == {"loss": 1.5, "accuracy": 75.0}
    assert Tally().means() == {"loss": 0.0, "accuracy": 0.0}


def test_a_tally_survives_a_checkpoint() -> None:
    tally = Tally(1.5, 2, 3, 4)
    assert Tally(**tally.to_dict()) == tally
