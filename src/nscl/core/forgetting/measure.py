"""What a memory can say about forgetting: old outputs, number by number, and what it cannot say."""

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from nscl.core.forgetting.block_movement import by_covariances, by_projections
from nscl.core.forgetting.parameter_movement import measure_parameters
from nscl.core.forgetting.uncounted import find_uncounted
from nscl.core.model.inventory import Inventory
from nscl.core.model.layer_types import running_statistics
from nscl.core.norms import running_stats
from nscl.core.options import MemoryOptions
from nscl.core.report import Forgetting, LayerForgetting, ParameterForgetting, Shift
from nscl.core.state import State


def measure_shifts(state: State, found: Inventory) -> tuple[Shift, ...]:
    """How far every norm layer's running statistics have moved since the last ``remember``."""
    return tuple(
        Shift(name, running_stats.shift(kept, running_statistics(found.norms[name])))
        for name, kept in state.statistics.items()
    )


def measure_forgetting(
    model: nn.Module, state: State, found: Inventory, options: MemoryOptions
) -> Forgetting:
    """Movement since the last ``remember``, and a list of all that its total does not contain.

    Sharded weights are gathered, so every rank must call this.
    """
    measure = by_covariances if options.keep_covariances else by_projections
    layers, total = measure(state, found)
    measured = {*state.covariances, *(layer.name for layer in layers)}
    counted = {p for name in measured for p in state.blocks[name].parameters}
    counted |= {adapter.up for adapter in state.adapters.values()}
    parameters = measure_parameters(state, found)
    return Forgetting(
        layers=layers,
        statistics=measure_shifts(state, found),
        total=_with_parameters(total, parameters),
        parameters=parameters,
        uncounted=find_uncounted(model, state, found, options, counted),
    )


def _with_parameters(
    total: LayerForgetting, parameters: Sequence[ParameterForgetting]
) -> LayerForgetting:
    """Where layers have a predicted loss, it is of the same kind and can be added up."""
    if total.loss is None:
        return total
    return replace(total, loss=total.loss + sum(one.loss for one in parameters))
