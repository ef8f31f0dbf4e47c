"""What a person should know before a run begins: unusual data, unusual options."""

from typing import Any

from nscl.data.tasks import TaskStream
from nscl.training.config.schema import ResolvedMethod, RunConfig


def notes(config: RunConfig, stream: TaskStream) -> list[str]:
    """One line each: of the stream, of options unlike the defaults, and beside the library."""
    found = [stream.note] if stream.note else []
    method = config.resolved
    if method is not None:
        found += _unlike_defaults(method)
        found += [text for text in (method.options.beside_library(),) if text]
    return found


def _unlike_defaults(method: ResolvedMethod) -> list[str]:
    """Options that a preset, a file or a person has given other values than the method."""
    fields = type(method.options).model_fields
    given = {name: getattr(method.options, name) for name in fields}
    usual = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    texts = [
        f"{name} = {_text(value)} (default {_text(usual[name])})"
        for name, value in given.items()
        if not fields[name].is_required() and value != usual[name]
    ]
    return [f"options unlike the defaults of {method.name}: {', '.join(texts)}"] if texts else []


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
