"""Sums of all layers of one pass; layers that are fed the same inputs share one sum.

Blocks begin to share when the first call of one is given the very tensor that the first call of
another was given, in the same memory and unchanged. From then on a call of one of them waits, as a
copy, until all others were given equal values, and is added once. A block that is given something
else, or is left out, goes on with a copy of the shared sum. So sums are always those that each
block would have alone, whatever the model does.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from nscl.core.covariance.accumulator import CovarianceAccumulator
from nscl.core.covariance.observations import InputRows, Observation, TokenCounter, TokenIds
from nscl.core.covariance.sketch_accumulator import SketchAccumulator
from nscl.core.model.block import Block

Sums = CovarianceAccumulator | SketchAccumulator | TokenCounter


@dataclass(frozen=True)
class _Given:
    """One call: what was seen, and which constant is its bias's."""

    seen: Observation
    constant: int | None

    @property
    def tensor(self) -> Tensor:
        if isinstance(self.seen, TokenIds):
            return self.seen.ids
        return self.seen.values if isinstance(self.seen, InputRows) else self.seen.images

    def kept(self) -> "_Given":
        """A copy that nothing else can write over."""
        tensor = self.tensor.clone()
        if isinstance(self.seen, TokenIds):
            return replace(self, seen=replace(self.seen, ids=tensor))
        if isinstance(self.seen, InputRows):
            return replace(self, seen=replace(self.seen, values=tensor))
        return replace(self, seen=replace(self.seen, images=tensor))

    def equals(self, other: "_Given") -> bool:
        """Whether two calls add the same."""
        alike = self.constant == other.constant and self.layout == other.layout
        return alike and torch.equal(self.tensor, other.tensor)

    @property
    def layout(self) -> object:
        """How the tensor becomes rows."""
        tensor = self.tensor
        geometry, rows = (getattr(self.seen, name, None) for name in ("geometry", "rows"))
        return type(self.seen), geometry, rows, tensor.shape, tensor.dtype, tensor.device


class _TensorVersion:
    """Where a tensor lies, and how often that memory had been written to."""

    def __init__(self, given: _Given) -> None:
        tensor = given.tensor
        self._storage = StorageWeakRef(tensor.untyped_storage())
        self._key = (given.constant, given.layout, tensor.storage_offset(), tensor.stride())
        self._version = tensor._version

    def is_same(self, other: "_TensorVersion") -> bool:
        """Whether this is the same memory, never written to in between.

        Other memory that has taken its place differs: a weak reference keeps its address taken.
        """
        same = self._storage == other._storage
        return same and (self._key, self._version) == (other._key, other._version)


@dataclass
class _Group:
    """Blocks with the same history."""

    shape: tuple[int, ...]
    sums: Sums
    calls: int = 0  # the one that waits included
    members: dict[str, int] = field(default_factory=dict)  # calls of each: all, or all but one
    waits: _Given | None = None
    first: _TensorVersion | None = None  # of the first call, as long as there was only one


class SharedSums:
    """The sums of every block during one pass."""

    def __init__(self, new: Callable[[Block], Sums]) -> None:
        self._new = new
        self._group: dict[str, _Group] = {}
        self._beginners: list[_Group] = []  # groups that were called once

    def add(self, block: Block, seen: Observation, constant: int | None) -> bool:
        """Add one call of a block; False if it is not finite."""
        given = _Given(seen, constant)
        group = self._group.get(block.name)
        if group is None:
            return self._begin(block, given)
        if group.members[block.name] < group.calls:
            return self._follow(block.name, group, given)
        return self._lead(block.name, group, given)

    def take(self, name: str) -> Sums | None:
        """The sums of a block, which are not kept any longer."""
        self.finish()
        group = self._group.pop(name, None)
        return None if group is None else group.sums

    def finish(self) -> None:
        """Add the calls that wait; blocks that were not given them go on alone."""
        for group in list(self._group.values()):
            self._settle(group)

    def __bool__(self) -> bool:
        return bool(self._group)

    def labels(self, names: Iterable[str]) -> list[int]:
        """A number for each block: the same for those that share sums, -1 without any."""
        self.finish()
        numbers: dict[int, int] = {}
        groups = [self._group.get(name) for name in names]
        return [-1 if g is None else numbers.setdefault(id(g), len(numbers)) for g in groups]

    def _begin(self, block: Block, given: _Given) -> bool:
        shape, first = (block.groups, block.features, len(block.biases)), _version_of(given)
        self._beginners = [group for group in self._beginners if group.calls == 1]
        for group in self._beginners:
            if first and group.shape == shape and group.first and group.first.is_same(first):
                self._join(block.name, group, calls=1)
                return True
        group = _Group(shape, self._new(block), calls=1, first=first)
        self._beginners.append(group)
        self._join(block.name, group, calls=1)
        return _add(group.sums, given)

    def _join(self, name: str, group: _Group, *, calls: int) -> None:
        group.members[name], self._group[name] = calls, group

    def _lead(self, name: str, group: _Group, given: _Given) -> bool:
        """A call that is new to the group."""
        is_finite = self._settle(group)
        group.calls += 1
        group.members[name] += 1
        if len(group.members) == 1:
            return _add(group.sums, given) and is_finite
        group.waits = given.kept()
        return is_finite

    def _follow(self, name: str, group: _Group, given: _Given) -> bool:
        """The call that others were given already, or another one, which separates this block."""
        assert group.waits is not None
        if not group.waits.equals(given):
            apart = self._part([name], group)
            apart.calls = apart.members[name] = group.calls
            return _add(apart.sums, given)
        group.members[name] += 1
        return self._settle(group) if min(group.members.values()) == group.calls else True

    def _settle(self, group: _Group) -> bool:
        """Add the call that waits, after separating the blocks that were not given it."""
        if group.waits is None:
            return True
        late = [name for name, calls in group.members.items() if calls < group.calls]
        if late:
            self._part(late, group)
        waits, group.waits = group.waits, None
        return _add(group.sums, waits)

    def _part(self, names: list[str], group: _Group) -> _Group:
        """Separate blocks, which go on with a copy of the sum: without the call that waits."""
        apart = _Group(group.shape, copy.deepcopy(group.sums), calls=group.calls - 1)
        for name in names:
            self._join(name, apart, calls=group.members.pop(name))
        return apart


def _add(sums: Sums, given: _Given) -> bool:
    return sums.add(given.seen, given.constant)


def _version_of(given: _Given) -> _TensorVersion | None:
    """Nothing is known of tokens, which are counted, and of tensors that do not count writes."""
    is_counted = isinstance(given.seen, TokenIds) or given.tensor.is_inference()
    return None if is_counted else _TensorVersion(given)
