"""Short names of settings stand for settings that exist, and for one each."""

from nscl.training.config.schema import RunConfig
from nscl.training.config.short_names import SHORT_NAMES, full_name, short_name
from nscl.training.config.validation import option_names


def test_every_short_name_stands_for_an_option_and_is_not_one_itself() -> None:
    options = option_names(RunConfig)
    assert set(SHORT_NAMES.values()) <= set(options)
    assert not set(SHORT_NAMES) & set(options)
    assert [short_name(full) for full in SHORT_NAMES.values()] == list(SHORT_NAMES)


def test_other_names_stay_as_they_are() -> None:
    assert full_name("batch_size") == full_name("batch-size") == "optim.batch_size"
    assert full_name("optim.later-lr") == "optim.later-lr"
