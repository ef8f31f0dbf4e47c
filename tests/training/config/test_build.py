"""The same settings from a file, the command line or Python make the same run."""

from pathlib import Path

import pytest

from nscl.training.config.build import build_config, complete, resolved_method
from nscl.training.config.presets import PRESETS, default_preset
from nscl.training.config.schema import ConfigError, RunConfig


def test_file_and_python_make_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('method = "adam-nscl"\nseed = 3\n[optim]\nlr = 0.02\n[options]\na = 30\n')
    written = build_config("split-digits-5", {}, file=file)
    typed = build_config(
        "split-digits-5",
        {"method": "adam-nscl", "seed": 3, "optim": {"lr": 0.02}, "options": {"a": "30"}},
    )
    assert written == typed
    assert written.run_name == typed.run_name


def test_the_command_line_wins_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[optim]\nlr = 0.5\nepochs = 7\n")
    config = build_config("split-digits-5", {"optim": {"lr": 0.25}}, file=file)
    assert (config.optim.lr, config.optim.epochs) == (0.25, 7)
    assert config.optim.batch_size == PRESETS["quick"]("split-digits-5")["optim"]["batch_size"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optim": {"lrr": 1}}, "optim.lrr.*did you mean 'optim.lr'"),
        ({"optim": {"lr": -1}}, "optim.lr.*greater than 0"),
        ({"options": {"alfa": 1}}, "method.alfa.*alpha"),
        ({"options": {"a": 0}}, "method.a.*greater than 0"),
        ({"preset": "papier"}, "no preset 'papier'"),
        ({"device": "tpu"}, "'device': device must be auto, .*cuda:N.* not 'tpu'"),
        ({"data": 3}, "'data' is a table of settings, .* not 3"),
        ({"model": 3}, "'model' is a table of settings"),
        (
            {"method": "finetune", "options": {"a": 1}},
            "no option 'method.a': finetune has no options",
        ),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config("split-digits-5", given)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("adam-nscl", {"share": 0.1}, r"method\.share.*belongs to rule energy"),
        ("adam-nscl", {"rule": "ridge", "a": 20}, r"method\.a' = 20.*belongs to rule ratio"),
        (
            "connector",
            {"rule": "energy", "literal": True},
            r"literal belongs to rule ratio",
        ),
        ("owm", {"online_alpha": 3}, r"method\.online_alpha.*belongs to mode online"),
        ("owm", {"mode": "online", "alpha": 3}, r"method\.alpha.*belongs to mode task_end"),
        ("mega", {"eps": 0.1}, r"method\.eps.*belongs to variant mega-i"),
        (
            "mega",
            {"variant": "mega-i", "clip_half_pi": False},
            r"_pi belongs to variant mega-ii",
        ),
        ("adns", {"head_epochs": 0, "kl_coef": 2}, r"method\.kl_coef.*head_epochs above 0"),
        ("adns", {"kl_coef": 0, "temperature": 3}, r"method\.temperature.*kl_coef above 0"),
    ],
)
def test_an_option_that_nothing_reads_is_refused(
    method: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config("split-digits-5", {"method": method, "options": options})


def test_what_nothing_reads_may_be_given_where_it_changes_nothing() -> None:
    """Presets have a number for the usual rule; commands that repeat a run say every option."""
    given = {"preset": "cpu-1", "options": {"rule": "ridge", "alpha": 3}}
    config = build_config("split-cifar100-10", given)
    again = build_config("split-cifar100-10", {"preset": "cpu-1", "options": config.options})
    assert (config.options["a"], again) == (30.0, config)


def test_presets_hold_the_published_values() -> None:
    """docs/methods.md, "Notation and protocol"; read off the authors' script and logs."""
    ten = build_config("split-cifar100-10", {"preset": "official"})
    twenty = build_config("split-cifar100-20", {"preset": "official"})
    tiny = build_config("split-tinyimagenet-25", {"preset": "official"})
    assert [c.optim.batch_size for c in (ten, twenty, tiny)] == [32, 16, 16]
    assert [c.optim.lr for c in (ten, twenty, tiny)] == [1e-4, 1e-4, 5e-5]
    assert {c.optim.later_lr for c in (ten, twenty, tiny)} == {5e-5}
    assert [c.options["a"] for c in (ten, twenty, tiny)] == [10, 30, 10]
    for config in (ten, twenty, tiny):
        optim = config.optim
        assert (optim.epochs, optim.milestones, optim.gamma) == (80, (30, 60), 0.5)
        assert (optim.heads_lr, optim.norms_lr, optim.weight_decay) == (1e-3, 5e-4, 5e-5)
        assert config.options["features"] == "batch_mean"
        assert config.options["scale"] == "frobenius"
    paper = build_config("split-cifar100-10", {})
    assert paper.preset == "paper" == default_preset("split-cifar100-10")
    assert (paper.optim.lr, paper.optim.backbone_lr(3)) == (5e-5, 5e-5)
    assert paper.options["features"] == "per_sample"
    assert paper.options["scale"] == "none"


@pytest.mark.parametrize("none", [None, "none"])
def test_none_is_a_value_of_a_methods_options(none: str | None) -> None:
    """Presets give numbers where the option's own words are "None: all"."""
    given = {"method": "mas", "preset": "cpu"}
    assert build_config("split-digits-5", given).options["samples"] == 1000
    config = build_config("split-digits-5", {**given, "options": {"samples": none}})
    assert config.options["samples"] is None
    with pytest.raises(ConfigError, match=r"method\.strength"):
        build_config("split-digits-5", {**given, "options": {"strength": none}})


def test_a_complete_configuration_is_not_completed_again() -> None:
    config = build_config("split-digits-5", {})
    assert complete(config) is config
    moved = config.model_copy(update={"threads": 2})
    assert complete(moved) is moved


@pytest.mark.parametrize("change", ["copy", "in place", "method"])
def test_changed_options_are_validated_again(change: str) -> None:
    """``model_copy`` checks nothing and keeps the options that were validated before."""
    config = build_config("split-digits-5", {})
    if change == "copy":
        config = config.model_copy(update={"options": {"a": "7"}})
    elif change == "in place":
        config.options["a"] = "7"
    else:
        config = config.model_copy(update={"method": "ewc"})
        with pytest.raises(ConfigError, match="there is no option 'method"):
            complete(config)
        return
    assert complete(config).options["a"] == 7
    assert resolved_method(config).options.model_dump()["a"] == 7


def test_a_configuration_made_by_hand_is_equal_once_it_is_complete() -> None:
    built = build_config("split-digits-5", {"method": "ewc"})
    by_hand = RunConfig(**built.model_dump())
    assert by_hand == built
    assert (by_hand.resolved, complete(by_hand)) == (None, built)
