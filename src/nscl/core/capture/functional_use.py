"""Weights that are used outside of their own module, seen by watching every torch function.

Hooks see calls of modules. A model may also pass a module's weight to a function itself
(``F.linear(x, self.embed.weight)``). Hooks cannot see that, so it becomes an error with a name
instead of a layer that silently stays unprotected.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from nscl.core.model.block import Block
from nscl.core.model.shared_storage import Aliases
from nscl.errors import UnsupportedError

# Looking at a weight is not using it.
_HARMLESS = {"size", "dim", "numel", "ndimension", "stride", "is_floating_point", "is_contiguous",
             "is_complex", "element_size", "data_ptr", "__repr__", "__hash__", "requires_grad_",
             "storage_offset", "__len__", "nelement", "get_device", "new_zeros", "new_ones",
             "new_empty", "new_full", "new_tensor", "zeros_like", "ones_like", "empty_like",
             "full_like", "rand_like", "randn_like", "randint_like", "is_pinned", "is_shared",
             "untyped_storage", "result_type", "is_same_size", "is_signed"}  # fmt: skip
# Attributes that give access to the values; others, like shape or dtype, only describe them.
_VIEWS = {"T", "mT", "H", "mH", "data", "real", "imag"}
# ``x.to(weight)`` reads the dtype of the weight only, ``weight.to(...)`` is a use of it.
_OF_THE_FIRST = {"to", "type_as"}


class FunctionalUseMonitor(TorchFunctionMode):
    """Knows which module is running, and records weights used outside of their own module."""

    def __init__(self, names: Mapping[int, str], aliases: Aliases, protected: Set[str]) -> None:
        super().__init__()
        self.names, self.aliases, self.protected = names, aliases, protected
        self.running: list[frozenset[str]] = []  # what belongs to the modules under way
        self.is_paused = False
        self.used_outside: dict[str, str] = {}
        self.altered: list[Block] = []  # layers that compute something else than their type
        self.used: set[str] = set()  # parameters
        self.norms_seen: set[str] = set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Ignore what is not part of the pass: losses, recomputation in backward."""
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Check the arguments for parameters, then call the function."""
        kwargs = kwargs or {}
        name, harmless = _name(func)
        reads_its_type = name == "type" and len(args) + len(kwargs) == 1  # with more it converts
        if not (self.is_paused or harmless or reads_its_type):
            owned = self.running[-1] if self.running else frozenset()
            found = args[:1] if name in _OF_THE_FIRST else (*args, *kwargs.values())
            for parameter in self._parameters(found):
                self.used.add(parameter)
                if parameter in self.protected and parameter not in owned:
                    self.used_outside.setdefault(parameter, name)
        return func(*args, **kwargs)

    def _parameters(self, values: Iterable[Any]) -> Iterator[str]:
        """Names of all parameters among arguments, also inside lists (``torch.cat([...])``).

        A view that was made before the pass (``self.tied = self.encode.weight.t()``) counts too,
        and so does a detached one, which has no reference to its parameter.
        """
        for value in values:
            if isinstance(value, Tensor):
                known = [t for t in (value, value._base) if id(t) in self.names]
                yield from (self.names[id(t)] for t in known) if known else self.aliases.of(value)
            elif isinstance(value, list | tuple):
                yield from self._parameters(value)

    def raise_if_unsupported(self) -> None:
        """Raise an error for the first use that cannot be protected."""
        for name, function in self.used_outside.items():
            raise UnsupportedError(
                f"parameter '{name}' is used by torch function '{function}' outside of its own "
                "layer, where its inputs are not seen: call the layer as a module, register a "
                f"module for that use (@nscl.register_layer), or exclude=['{name}']"
            )
        for layer in self.altered:
            raise UnsupportedError(
                f"layer '{layer.name}' was given a forward on the instance and does not compute "
                f"what {layer.kind} does: write it as a class and register that with "
                f"@nscl.register_layer{layer.way_out}"
            )


def _name(func: Any) -> tuple[str, bool]:
    """The name of a torch function or attribute, and whether it reads no values."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(func.__self__, "__name__", name)
        return name, name not in _VIEWS
    return name, name in _HARMLESS
