"""Names that a user gives: ``exclude=`` takes modules or parameters, by name or by pattern."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain

from torch import nn

from nscl.errors import NsclError, UnsupportedError


def clean(name: str) -> str:
    """A qualified name without the marks of compiled submodules."""
    return name.replace("_orig_mod.", "").replace("._orig_mod", "")


def as_patterns(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, as several."""
    return (names,) if isinstance(names, str) else tuple(names)


def is_meant(name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern matches this name, or a module that it is in."""
    return any(fnmatchcase(prefix, pattern) for pattern in patterns for prefix in _prefixes(name))


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])


def is_in(model: nn.Module, pattern: str) -> bool:
    """Whether a pattern means anything in a model."""
    named = chain(model.named_parameters(), model.named_modules())
    return any(is_meant(clean(name), [pattern]) for name, _ in named)


def follow_names(
    patterns: Sequence[str], names: Mapping[str, str], model: nn.Module
) -> tuple[str, ...]:
    """Patterns that mean what they meant before a model's parts had other names, old → new."""
    kept = [pattern for pattern in patterns if is_in(model, pattern)]
    for before, now in names.items():
        if any(fnmatchcase(before, pattern) for pattern in patterns) and not is_meant(now, kept):
            kept.append(now)
    return tuple(kept)


def excluded(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], patterns: Sequence[str]
) -> set[str]:
    """The parameters that these patterns mean; one that means nothing is a mistake."""
    for pattern in patterns:
        if not is_in(model, pattern):
            known = ", ".join(sorted({name.split(".")[0] for name in parameters}))
            raise NsclError(
                f"exclude={pattern!r} matches no module or parameter; top-level names: {known}"
            )
    found = {name for name in parameters if is_meant(name, patterns)}
    _check_shared_names(model, parameters, patterns, found)
    return found


def _check_shared_names(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    patterns: Sequence[str],
    found: set[str],
) -> None:
    """A parameter that two modules share is left free for both or for none."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    for alias, parameter in model.named_parameters(remove_duplicate=False):
        name, alias = names[id(parameter)], clean(alias)
        if is_meant(alias, patterns) and name not in found:
            raise UnsupportedError(
                f"exclude would leave '{alias}' free, but that is '{name}' too, which is not "
                f"excluded: untie them, or exclude=['{name}', ...] to leave it free for both"
            )
