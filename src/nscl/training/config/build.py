"""From given settings to a complete configuration: preset, file, command line, method options."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscl.data.catalogue import has_texts
from nscl.methods.registry import load_method
from nscl.models.registry import check_model_name
from nscl.training.config.inputs import check_kind, with_tokenizer
from nscl.training.config.layers import merge, read_toml
from nscl.training.config.presets import default_preset, newest, preset
from nscl.training.config.schema import ConfigError, ResolvedMethod, RunConfig
from nscl.training.config.short_names import with_full_names
from nscl.training.config.validation import validated

if TYPE_CHECKING:
    from nscl.methods.base import Options  # imports torch


def build_config(
    benchmark: str, given: Mapping[str, Any], *, file: Path | None = None
) -> RunConfig:
    """Merge preset, TOML file and the given settings, and validate the method's own options too.

    ``nscl run`` does the same. Settings that are typed often have short names, as there: ``lr`` for
    ``optim.lr``. A ``RunConfig`` made by hand takes no values from a preset.

    >>> config = build_config("split-digits-5", {"method": "finetune", "optim": {"epochs": 2}})
    >>> config.preset, config.model.name, config.optim.epochs
    ('quick', 'mlp', 2)
    """
    written = with_full_names(read_toml(file)) if file else {}
    settings = merge(written, with_full_names(given))
    settings.pop("benchmark", None)
    method = str(settings.get("method", "adam-nscl"))
    name = newest(str(settings.get("preset", default_preset(benchmark))), benchmark)
    usual = _without_partners(dict(preset(name, benchmark, method)), settings)
    # The preset's None is a value: below it there is nothing to leave as it is.
    merged = merge({"benchmark": benchmark, **usual}, {**settings, "preset": name})
    config = complete(validated(RunConfig, merged))
    _check_options_have_effect(config, usual.get("options", {}), settings.get("options", {}))
    check_model_name(config.model.name)
    return config


def _without_partners(usual: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The preset without values that go with others, which are given here."""
    if "name" in given.get("model", {}):
        for name in ("width", "stem_stride"):  # those of another network mean nothing here
            usual["model"].pop(name, None)
    if "epochs" in given.get("optim", {}):
        usual["optim"].pop("first_epochs", None)
    return usual


def _check_options_have_effect(
    config: RunConfig, usual: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Refuse an option that nothing reads, unless its value is the preset's.

    The command that repeats a run gives every option, also those that nothing reads.
    """
    resolved = resolved_method(config)
    idle = {name: owner for name, owner in resolved.options.unread().items() if name in given}
    if not idle:
        return
    preset_values = type(resolved.options).model_validate(usual).model_dump(mode="json")
    for name, owner in idle.items():
        value = config.options[name]
        if value != preset_values[name]:
            raise ConfigError(
                f"option 'method.{name}' = {value} has no effect here: {name} belongs to {owner}. "
                "Choose that, or leave the option out"
            )


def complete(config: RunConfig) -> RunConfig:
    """The same configuration with every option of its method validated and written out.

    A configuration that is complete is returned as it is.
    """
    if config.resolved is not None:
        return config
    kind = load_method(config.method)
    check_kind(config, kind, "texts" if has_texts(config.benchmark) else None)
    config = with_tokenizer(config)
    options = _options(kind.options_type, config).settled(config.benchmark, config.data_dir)
    completed = config.model_copy(update={"options": options.model_dump(mode="json")})
    completed._resolved = ResolvedMethod(config.method, kind, options)
    return completed


def _options(kind: "type[Options]", config: RunConfig) -> "Options":
    if config.options and not kind.model_fields:
        name = next(iter(config.options))
        raise ConfigError(f"there is no option 'method.{name}': {config.method} has no options")
    return validated(kind, config.options, where="method.")


def resolved_method(config: RunConfig) -> ResolvedMethod:
    """The method's class and typed options of a configuration, complete or not."""
    resolved = complete(config)._resolved
    assert resolved is not None
    return resolved
