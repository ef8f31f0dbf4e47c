"""From what a user said to a complete configuration: preset, file, command line, method options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nscl.methods.registry import load_method
from nscl.models.registry import check_model
from nscl.training.config import ConfigError, RunConfig, merge, read_toml, validated
from nscl.training.presets import PRESETS, default_preset, preset


def build_config(benchmark: str, said: Mapping[str, Any], *, file: Path | None = None) -> RunConfig:
    """Merge preset, TOML file and what was said, and validate the method's own options too.

    This is what ``nscl run`` does; a bare ``RunConfig`` has the defaults of no preset.

    >>> config = build_config("split-digits-5", {"method": "finetune", "optim": {"epochs": 2}})
    >>> config.preset, config.model.name, config.optim.epochs
    ('quick', 'mlp', 2)
    """
    spoken = merge(read_toml(file) if file else {}, said)
    spoken.pop("benchmark", None)
    method = str(spoken.get("method", "adam-nscl"))
    name = str(spoken.get("preset", default_preset(benchmark)))
    if name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}; known: {', '.join(PRESETS)}")
    usual = preset(name, benchmark, method)
    if "name" in spoken.get("model", {}):
        usual["model"].pop("width", None)  # the width of another network means nothing here
    config = complete(RunConfig.build(benchmark, usual, spoken, {"preset": name}))
    _check_read(config, usual.get("options", {}), spoken.get("options", {}))
    check_model(config.model.name)
    return config


def _check_read(config: RunConfig, usual: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Refuse an option that nothing reads, but where it says what holds without it.

    The command that repeats a run says every option, those that nothing reads too.
    """
    kind = load_method(config.method).options_type
    unsaid = kind.model_validate(usual).model_dump(mode="json")
    for name, owner in kind.model_validate(config.options).unread().items():
        value = config.options[name]
        if name in said and value != unsaid[name]:
            raise ConfigError(
                f"option 'method.{name}' = {value} has no effect here: {name} belongs to {owner}. "
                "Choose that, or leave the option out"
            )


def complete(config: RunConfig) -> RunConfig:
    """The same configuration with every option of its method written out."""
    kind = load_method(config.method).options_type
    if config.options and not kind.model_fields:
        name = next(iter(config.options))
        raise ConfigError(f"there is no option 'method.{name}': {config.method} has no options")
    options = validated(kind, config.options, where="method.")
    options = options.settled(config.benchmark, config.data_dir)
    return config.model_copy(update={"options": options.model_dump(mode="json")})
