"""Options of methods: which of them do nothing beside others."""

import pytest

from nscl.methods import METHODS, load_method


@pytest.mark.parametrize("method", METHODS)
def test_conditions_of_options_name_options_and_values_that_exist(method: str) -> None:
    kind = load_method(method).options_type
    for name, condition in kind.used_with.items():
        other, wanted = condition.split(" ", 1)
        assert {name, other} <= kind.model_fields.keys()
        if wanted != "above 0" and not wanted.startswith("not "):
            kind.model_validate({other: wanted})


def test_an_option_of_an_option_without_effect_has_none_either() -> None:
    options = load_method("adns").options_type
    waiting = {"temperature": "kl_coef above 0", "teacher": "kl_coef above 0"}
    assert options.model_validate({}).unread() == {}
    assert options.model_validate({"kl_coef": 0}).unread() == waiting
    untaught = options.model_validate({"head_epochs": 0}).unread()
    assert set(untaught.values()) == {"head_epochs above 0"}
    assert untaught.keys() == {"kl_coef", "head_rate", *waiting}
