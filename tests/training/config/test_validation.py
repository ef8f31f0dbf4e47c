"""What pydantic refuses is one line that names the option as it is typed."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from nscl.training.config.schema import ConfigError, Optim, RunConfig
from nscl.training.config.validation import option_names, validated, wrong_value


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": "fast"}, "option 'optim.lr': must be a number, not 'fast'"),
        ({"lrr": 1}, r"there is no option 'optim.lrr' \(did you mean 'lr'\?\)"),
        ({"qqqqqq": 1}, "there is no option 'optim.qqqqqq'; known: name, lr, later_lr"),
    ],
)
def test_the_option_is_named_with_its_table(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        validated(Optim, values, where="optim.")


def test_a_missing_option_is_named_without_all_the_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        validated(RunConfig, {"seed": 1}, file=tmp_path / "settings.toml")
    assert str(caught.value) == f"{tmp_path}/settings.toml: option 'benchmark': is required"


def test_a_wrong_value_is_named_as_it_is_typed() -> None:
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate({"benchmark": "x", "optim": {"later_lr": 0}})
    expected = "option --optim.later-lr: must be greater than 0, not 0"
    assert wrong_value(caught.value) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "mlp"}, "option 'model': is a table of settings, not 'mlp'"),
        ({"seed": "x"}, "option 'seed': must be a whole number, not 'x'"),
        ({"eval_each_epoch": "so"}, "option 'eval_each_epoch': must be true or false, not 'so'"),
        ({"method": 3}, "option 'method': must be text, not 3"),
        ({"preset": "nah"}, "option 'preset': must be 'paper', .* or 'quick', not 'nah'"),
        ({"optim": {"milestones": 3}}, "option 'optim.milestones': must be a list, not 3"),
    ],
)
def test_no_message_speaks_of_the_validators_own_types(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        validated(RunConfig, {"benchmark": "x", **values})


def test_options_of_a_table_have_its_name() -> None:
    names = option_names(RunConfig)
    assert {"seed", "optim.lr", "model.width"} <= set(names)
    assert "optim" not in names
