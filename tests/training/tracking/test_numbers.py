"""Every number of a record has a name; what cannot be drawn is left out."""

from nscl.training.tracking.numbers import numbers


def test_lists_and_tables_are_counted_out_and_words_are_left_out() -> None:
    record = {
        "kind": "epoch",
        "phase": "train",
        "steps": 18,
        "lr": [0.01, 0.1],
        "method/free": {"fc": 0.5},
        "test_accuracy": None,
        "old_losses": [],
        "converged": True,
    }
    assert numbers(record) == {
        "epoch/steps": 18.0,
        "epoch/lr/1": 0.01,
        "epoch/lr/2": 0.1,
        "epoch/method/free/fc": 0.5,
    }
