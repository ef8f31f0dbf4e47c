"""What pydantic refuses is one line that names the option as it is typed."""

import math
from functools import partial
from pathlib import Path

import pytest
from pydantic import ValidationError

from nscl.training.config.build import build_config
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
        ({"model": 3}, "option 'model': must be a table of names and values, not 3"),
        ({"optim": "adam"}, "option 'optim': must be a table of names and values, not 'adam'"),
        ({"seed": "x"}, "option 'seed': must be a whole number, not 'x'"),
        ({"eval_each_epoch": "so"}, "option 'eval_each_epoch': must be true or false, not 'so'"),
        ({"method": 3}, "option 'method': must be text, not 3"),
        ({"preset": "nah"}, "option 'preset': must be 'paper', .* or 'quick', not 'nah'"),
        ({"optim": {"milestones": 3}}, "option 'optim.milestones': must be a list, not 3"),
        ({"optim": {"milestones": ["x"]}}, "'optim.milestones.0': must be a whole number, not 'x'"),
        ({"optim": {"lr": math.inf}}, "option 'optim.lr': must be a finite number, not inf"),
        ({"optim": {"gamma": math.nan}}, "option 'optim.gamma': must be a finite number, not nan"),
        ({"label": ""}, "option 'label': must not be empty, not ''"),
        ({"out": 3}, "option 'out': must be a path, not 3"),
    ],
)
def test_no_message_speaks_of_the_validators_own_types(
    values: dict[str, object], message: str
) -> None:
    for make in (partial(validated, RunConfig), lambda given: RunConfig(**given)):
        with pytest.raises(ConfigError, match=f"{message}$") as caught:
            make({"benchmark": "x", **values})
        assert "\n" not in str(caught.value)
        assert "pydantic" not in str(caught.value)


def test_a_run_config_made_by_hand_names_what_is_wrong_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^option 'benchmark': is required$"):
        RunConfig(model="mymodel:factory")
    assert RunConfig(benchmark="x", model="mymodel:factory").model.name == "mymodel:factory"
    with pytest.raises(ConfigError, match=r"^there is no option 'modle' \(did you mean 'm"):
        RunConfig(benchmark="x", modle="mlp")
    with pytest.raises(ConfigError, match=r"'lr' is short for 'optim.lr', which is given too"):
        RunConfig(benchmark="x", lr=0.1, optim=Optim(lr=0.2))
    assert RunConfig(benchmark="x", lr=0.1, optim=Optim(epochs=2)).optim == Optim(lr=0.1, epochs=2)


def test_a_methods_options_are_finite() -> None:
    with pytest.raises(ConfigError, match=r"^option 'method.a': must be a finite number, not inf$"):
        build_config("split-digits-5", {"options": {"a": math.inf}})


def test_options_of_a_table_have_its_name() -> None:
    names = option_names(RunConfig)
    assert {"seed", "optim.lr", "model.width"} <= set(names)
    assert "optim" not in names
