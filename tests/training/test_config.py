"""One configuration, three doors: the same settings from anywhere make the same run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from nscl.results import run_name
from nscl.training.config import ConfigError, Optim, RunConfig, merge
from nscl.training.prepare import build_config
from nscl.training.presets import PRESETS, default_preset


def name_of(config: RunConfig) -> str:
    return run_name(
        benchmark=config.benchmark,
        method=config.method,
        seed=config.seed,
        config=config.identity(),
    )


def test_file_and_python_make_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('method = "adam-nscl"\nseed = 3\n[optim]\nlr = 0.02\n[options]\na = 30\n')
    written = build_config("split-digits-5", {}, file=file)
    spoken = build_config(
        "split-digits-5",
        {"method": "adam-nscl", "seed": 3, "optim": {"lr": 0.02}, "options": {"a": "30"}},
    )
    assert written == spoken
    assert name_of(written) == name_of(spoken)


def test_the_command_line_wins_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[optim]\nlr = 0.5\nepochs = 7\n")
    config = build_config("split-digits-5", {"optim": {"lr": 0.25}}, file=file)
    assert (config.optim.lr, config.optim.epochs) == (0.25, 7)
    assert config.optim.batch_size == PRESETS["quick"]("split-digits-5", "")["optim"]["batch_size"]


def test_where_a_run_happens_does_not_change_its_name() -> None:
    here = build_config("split-digits-5", {})
    there = build_config(
        "split-digits-5", {"threads": 2, "device": "cpu", "out": "/elsewhere", "data_dir": "/data"}
    )
    called = build_config("split-digits-5", {"label": "as it is"})
    assert name_of(here) == name_of(there) == name_of(called)
    assert "label" not in here.place()
    assert name_of(here) != name_of(build_config("split-digits-5", {"seed": 1}))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"optim": {"lrr": 1}}, "optim.lrr.*Did you mean 'optim.lr'"),
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
def test_a_wrong_setting_is_named(said: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config("split-digits-5", said)


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


def test_what_nothing_reads_may_be_said_where_it_changes_nothing() -> None:
    """Presets have a number for the usual rule; commands that repeat a run say every option."""
    said = {"preset": "cpu", "options": {"rule": "ridge", "alpha": 3}}
    config = build_config("split-cifar100-10", said)
    again = build_config("split-cifar100-10", {"preset": "cpu", "options": config.options})
    assert (config.options["a"], again) == (30.0, config)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file"):
        build_config("split-digits-5", {}, file=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("lr = = 3")
    with pytest.raises(ConfigError, match="no TOML file"):
        build_config("split-digits-5", {}, file=tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="is a folder: name the TOML file"):
        build_config("split-digits-5", {}, file=tmp_path)
    with pytest.raises(ConfigError, match=r"cannot read .*below: Not a directory"):
        build_config("split-digits-5", {}, file=tmp_path / "bad.toml" / "below")


def test_a_tables_bare_value_is_refused_below_another_layer() -> None:
    """It would be lost without a word, or a method's options could not be joined with it."""
    for name in ("options", "data"):
        with pytest.raises(ConfigError, match=f"{name!r} is a table of settings"):
            merge({name: 3}, {name: {"first": 2}})


def test_presets_hold_the_published_values() -> None:
    """METHODS §1.5, read off the authors' script and logs."""
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


def test_rates_halve_at_the_milestones() -> None:
    optim = Optim(milestones=(30, 60), gamma=0.5)
    assert [optim.factor(e) for e in (0, 29, 30, 59, 60, 79)] == [1, 1, 0.5, 0.5, 0.25, 0.25]


settings = st.dictionaries(st.sampled_from("abc"), st.integers() | st.none(), max_size=3)


@given(base=settings, over=settings)
def test_merging_keeps_what_was_not_said(base: dict[str, int], over: dict[str, int]) -> None:
    merged = merge({"x": base}, {"x": over})["x"]
    for key in {*base, *over}:
        said = over.get(key)
        assert merged.get(key) == (said if said is not None else base.get(key))


@pytest.mark.parametrize("none", [None, "none"])
def test_none_is_a_value_of_a_methods_options(none: str | None) -> None:
    """Presets give numbers where the option's own words are "None: all"."""
    said = {"method": "mas", "preset": "cpu"}
    assert build_config("split-digits-5", said).options["samples"] == 1000
    config = build_config("split-digits-5", {**said, "options": {"samples": none}})
    assert config.options["samples"] is None
    with pytest.raises(ConfigError, match=r"method\.strength"):
        build_config("split-digits-5", {**said, "options": {"strength": none}})


def settings_of(part: type[BaseModel], path: str = "") -> Iterator[tuple[str, str | None]]:
    for name, field in part.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from settings_of(kind, f"{path}{name}.")
        else:
            yield path + name, field.description


def test_every_setting_is_explained_in_words_of_its_own() -> None:
    """They are what `nscl run --help` says."""
    said = dict(settings_of(RunConfig))
    assert len(said) > 30
    assert [name for name, words in said.items() if not words] == []
    assert len(set(said.values())) == len(said)
