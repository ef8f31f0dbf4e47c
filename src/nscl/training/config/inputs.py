"""Settings that pictures alone have, and the tokenizer of texts: settled before a run is named."""

from typing import TYPE_CHECKING

from nscl import pretrained
from nscl.data.catalogue import Kind, has_texts
from nscl.training.config.schema import ConfigError, RunConfig

if TYPE_CHECKING:
    from nscl.methods.base import Method

LENGTH = 32  # tokens


def with_tokenizer(config: RunConfig) -> RunConfig:
    """The same configuration with the tokenizer and length of its texts written out."""
    data, model = config.data, config.model.name
    if not has_texts(config.benchmark) or data.digest is not None:
        return config
    own = model if pretrained.is_pretrained(model) else "words"
    chosen = data.tokenizer or own
    if own != "words" and chosen != own:
        raise ConfigError(
            f"option 'data.tokenizer': {model} was trained with its own tokens and makes no sense "
            f"of those of {chosen!r}; leave it out"
        )
    named = {"tokenizer": chosen, "length": data.length or LENGTH}
    return config.model_copy(update={"data": data.model_copy(update=named)})


def check_kind(config: RunConfig, kind: "type[Method]", has: Kind | None) -> None:
    """Refuse a method or a setting that is for pictures where there are texts."""
    if has != "texts":
        return
    if has not in kind.kinds:
        raise ConfigError(
            f"method {config.method!r} needs pictures, and {config.benchmark} has texts; "
            "`nscl list methods` names the others"
        )
    for option, value, usual in (
        ("data.augment", config.data.augment, ("default", "none")),
        ("data.size", config.data.size, (None,)),
        ("model.size", config.model.size, (None,)),
        ("model.memory_format", config.model.memory_format, ("contiguous",)),
    ):
        if value not in usual:
            raise ConfigError(
                f"option {option!r} = {value} is for pictures, and {config.benchmark} has texts: "
                "leave it out"
            )
