"""A witness of every torch function in a pass: which weights are used, and whose they are.

Hooks see calls of modules. A model may also hand a module's weight to a function itself
(``F.linear(x, self.embed.weight)``); the witness notes such a use, so that it becomes an error with
a name, never a layer that silently stays unprotected.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from nscl.core.blocks import Block
from nscl.core.overlaps import Aliases
from nscl.errors import UnsupportedError

# Looking at a weight is not using it.
_HARMLESS = {"size", "dim", "numel", "ndimension", "stride", "is_floating_point", "is_contiguous",
             "is_complex", "element_size", "data_ptr", "__repr__", "__hash__", "requires_grad_",
             "storage_offset", "__len__", "nelement", "get_device", "new_zeros", "new_ones",
             "new_empty", "new_full", "new_tensor", "zeros_like", "ones_like", "empty_like",
             "full_like", "rand_like", "randn_like", "randint_like", "is_pinned", "is_shared",
             "untyped_storage", "result_type", "is_same_size", "is_signed"}  # fmt: skip
# Attributes that hand the values on, where shape or dtype only tell about them.
_VIEWS = {"T", "mT", "H", "mH", "data", "real", "imag"}
# ``x.to(weight)`` asks the weight for its dtype only, ``weight.to(...)`` is a use of it.
_OF_THE_FIRST = {"to", "type_as"}


class Witness(TorchFunctionMode):
    """Knows which module is running, and notes weights used outside of their own module."""

    def __init__(self, names: Mapping[int, str], aliases: Aliases, protected: Set[str]) -> None:
        super().__init__()
        self.names, self.aliases, self.protected = names, aliases, protected
        self.running: list[frozenset[str]] = []  # what belongs to the modules under way
        self.blind = False
        self.strangers: dict[str, str] = {}
        self.altered: list[Block] = []  # layers that compute something else than their type
        self.used: set[str] = set()  # parameters
        self.norms_seen: set[str] = set()

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """What happens meanwhile is no part of the pass: losses, recomputation in backward."""
        self.blind = True
        try:
            yield
        finally:
            self.blind = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Check the arguments for parameters, then do what was asked."""
        kwargs = kwargs or {}
        name, harmless = _name(func)
        asks_its_type = name == "type" and len(args) + len(kwargs) == 1  # with more it converts
        if not (self.blind or harmless or asks_its_type):
            owned = self.running[-1] if self.running else frozenset()
            found = args[:1] if name in _OF_THE_FIRST else (*args, *kwargs.values())
            for parameter in self._parameters(found):
                self.used.add(parameter)
                if parameter in self.protected and parameter not in owned:
                    self.strangers.setdefault(parameter, name)
        return func(*args, **kwargs)

    def _parameters(self, values: Iterable[Any]) -> Iterator[str]:
        """Names of all parameters among arguments, also inside lists (``torch.cat([...])``).

        A view that was made before the pass (``self.tied = self.encode.weight.t()``) is one, too,
        and so is a detached one, which knows nothing of its parameter.
        """
        for value in values:
            if isinstance(value, Tensor):
                known = [t for t in (value, value._base) if id(t) in self.names]
                yield from (self.names[id(t)] for t in known) if known else self.aliases.of(value)
            elif isinstance(value, list | tuple):
                yield from self._parameters(value)

    def testify(self) -> None:
        """Raise what was seen and cannot be protected."""
        for name, function in self.strangers.items():
            raise UnsupportedError(
                f"parameter '{name}' is used by torch function '{function}' outside of its own "
                "layer, so its inputs there cannot be seen: call the layer as a module, write a "
                f"module for that use and teach it with @nscl.register_layer, or exclude=['{name}']"
            )
        for layer in self.altered:
            raise UnsupportedError(
                f"layer '{layer.name}' was given a forward on the instance and does not compute "
                f"what {layer.kind} does: write it as a class and teach that with "
                f"@nscl.register_layer{layer.way_out}"
            )


def _name(func: Any) -> tuple[str, bool]:
    """What a torch function (or attribute) is called, and whether it only looks at a tensor."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(func.__self__, "__name__", name)
        return name, name not in _VIEWS
    return name, name in _HARMLESS
