"""A memory that projects as it is told: the seam for the methods that came before and after.

``Memory`` goes from second moments to projections by one rule, anew after every task. Relatives of
the method get there in other ways: bases that only grow, null spaces that are combined, a projector
that follows every batch. All else is the same for them, and stays in one place: the pass over old
data, norm layers, reference weights, the guard on the optimizer, the report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from nscl.core.blocks import Block, bias_vectors, weight_matrix
from nscl.core.choices import Norms
from nscl.core.covariance import Covariance
from nscl.core.dropping import check_known, without
from nscl.core.memory import Memory
from nscl.core.projection import Mask, Projection
from nscl.core.remembering import Forward, Loss
from nscl.core.report import Forgetting, LayerForgetting
from nscl.core.rules import Ratio
from nscl.core.shards import whole
from nscl.core.spectrum import Spectrum
from nscl.core.state import State, analyse
from nscl.errors import ModelMismatchError, NsclError

Projections = Mapping[str, Projection]
Spectra = Mapping[str, Spectrum]


@dataclass(frozen=True)
class Moments:
    """Second moments of a block's rows; large, so they are written out one block at a time."""

    covariance: Covariance
    features: int  # without biases

    def written_out(self) -> tuple[Tensor, Tensor]:
        """Mean outer product ``[groups, d, d]``, and the noise in it as ``decompose`` takes it."""
        dense = self.covariance.dense()
        return dense, self.covariance.rounding(dense, self.features)


class Steered(Memory):
    """``observe`` hands second moments out; ``steer`` says how steps are projected from now on.

    With ``keep=True`` second moments are added up over all passes, as in any ``Memory``, and
    ``forgetting`` is exact. Otherwise nothing is kept of a pass but what ``steer`` is given, and
    ``forgetting`` measures the movement in held directions. Embeddings need no steering: tokens
    that were seen are held.

    >>> model = nn.Linear(3, 2, bias=False)
    >>> memory = Steered(model)
    >>> protection = memory.protect(optimizer := torch.optim.SGD(model.parameters(), 1.0))
    >>> seen = memory.observe([torch.eye(3)[:1]])
    >>> memory.steer({name: Projection(torch.eye(3)[None, :, :1], removes=True) for name in seen})
    >>> before = model(torch.eye(3)).detach()
    >>> model(torch.randn(8, 3)).square().sum().backward(); optimizer.step()
    >>> (model(torch.eye(3)) != before).any(1)
    tensor([False,  True,  True])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        norms: Norms = "ewc",
        exclude: Sequence[str] = (),
        keep: bool = False,
    ) -> None:
        super().__init__(model, rule=Ratio(), norms=norms, exclude=exclude)
        self.keep = keep
        self._seen: dict[str, Moments] | None = None  # only while a pass is observed

    @property
    def projections(self) -> dict[str, Projection]:
        """How each block's steps are projected at present."""
        found = self._state.projections
        return {name: p for name, p in found.items() if isinstance(p, Projection)}

    def observe(
        self,
        batches: Iterable[Any],
        *,
        forward: Forward | None = None,
        loss: Loss | None = None,
        batch_mean: bool = False,
    ) -> dict[str, Moments]:
        """One pass like ``remember``'s; returns the second moments of every matrix it ran.

        They are those of this pass, or of all passes so far with ``keep=True``. How steps are
        projected changes only with the next ``steer``.
        """
        seen: dict[str, Moments] = {}
        self._seen = seen
        try:
            self.remember(batches, forward=forward, loss=loss, batch_mean=batch_mean)
        finally:
            self._seen = None
        return seen

    def steer(self, projections: Projections, spectra: Spectra | None = None) -> None:
        """Project the steps of these blocks like this; others stay as they are.

        ``spectra`` is what the report shall tell of them.
        """
        found, state = self._inventory(), self._state
        for name, projection in projections.items():
            block = found.blocks.get(name)
            width = projection.basis.shape[1]
            if block is None or block.width != width:
                has = "no such block" if block is None else f"{block.width} features there"
                raise ModelMismatchError(
                    f"a projection of {width} features was given for '{name}', but the model has "
                    f"{has}"
                )
        self._switch(
            replace(
                state,
                blocks={**state.blocks, **{name: found.blocks[name] for name in projections}},
                projections={**state.projections, **projections},
                spectra={**state.spectra, **(spectra or {})},
            )
        )

    def forgetting(self) -> Forgetting:
        """How far old outputs have moved, exactly where second moments are kept."""
        return super().forgetting() if self.keep else self.movement(self.projections)

    @torch.no_grad()
    def movement(self, projections: Projections) -> Forgetting:
        """Movement since the last pass in the directions that these projections hold.

        With P a projector, what it takes away from a displacement is ``ΔW (I − P)``; drift is its
        inner product with ΔW, and ``relative`` compares it with the same of the weights.
        """
        shifts = super().forgetting().statistics
        parameters, layers, drift, energy = self._inventory().parameters, [], 0.0, 0.0
        for name, projection in projections.items():
            block = self._state.blocks[name]
            if not self._state.reference.keys() >= set(block.parameters):
                continue  # no pass has run it: there is nothing that it could have moved from
            before = {p: whole(self._state.reference[p]).double().cpu() for p in block.parameters}
            now = {p: whole(parameters[p].detach()).double().cpu() for p in block.parameters}
            moved = _held(block, projection, {p: now[p] - before[p] for p in now})
            was = _held(block, projection, before)
            layers.append(LayerForgetting(name, moved, moved / was if was > 0 else 0.0))
            drift, energy = drift + moved, energy + was
        total = LayerForgetting("total", drift, drift / energy if energy > 0 else 0.0)
        return Forgetting(tuple(layers), shifts, total)

    def state_dict(self) -> dict[str, Any]:
        """What any memory has, and the steering: it cannot be recomputed."""
        steering = {
            name: {"basis": p.basis, "removes": p.removes, "scale": p.scale, "dense": p.dense}
            for name, p in self.projections.items()
        }
        masks = {n: p.free for n, p in self._state.projections.items() if isinstance(p, Mask)}
        spectra = {
            name: {"eigenvalues": s.eigenvalues, "weights": s.weights, "floor": s.floor}
            for name, s in self._state.spectra.items()
        }
        added = {"steering": steering, "masks": masks, "spectra": spectra}
        return {**super().state_dict(), **added}

    def load_state_dict(self, state: Mapping[str, Any], *, exclude: Sequence[str] = ()) -> None:
        """Take over a ``state_dict``, steering included; as a whole."""
        if exclude:
            raise NsclError(
                "a steered memory is loaded as a whole: call forget(...) before its state_dict is "
                "taken"
            )
        super().load_state_dict(state)
        masks = {name: Mask(free) for name, free in state["masks"].items()}
        found = self._inventory().blocks
        blocks = {**self._state.blocks, **{name: found[name] for name in masks}}
        self._switch(replace(self._state, blocks=blocks, projections=masks))
        self.steer(
            {name: Projection(**kept) for name, kept in state["steering"].items()},
            {name: Spectrum(**kept) for name, kept in state["spectra"].items()},
        )

    def forget(self, names: Sequence[str]) -> None:
        """Drop what was observed of these layers, and how they are steered."""
        check_known(self._state, names)
        self._switch(without(self._state, names))

    def merge(self, other: Memory, *, same_tasks: bool = True) -> NoReturn:
        """Refuse: two ways of steering have no sum."""
        raise NsclError("a steered memory cannot be merged; merge the data, or use nscl.Memory")

    def save(self, path: str | Path) -> NoReturn:
        """Refuse: a memory file holds second moments, from which steering cannot be rebuilt."""
        raise NsclError(
            "a steered memory has no file format of its own: keep its state_dict, or use "
            "nscl.Memory for memories that travel"
        )

    def _strayed(self, parameters: Mapping[str, Tensor]) -> list[str]:
        """Nobody can tell: a projection may have been another one at each step."""
        return []

    def _replace(self, state: State) -> None:
        """Keep what was asked for; steering stays as it is."""
        before = self._state
        if self._seen is not None:
            for name, covariance in state.covariances.items():
                if not covariance.is_diagonal:
                    self._seen[name] = Moments(covariance, state.blocks[name].features)
        masks, spectra = self._tokens(state)
        self._switch(
            replace(
                state,
                blocks={**before.blocks, **state.blocks},
                covariances=state.covariances if self.keep else {},
                projections={**before.projections, **masks},
                spectra={**before.spectra, **spectra},
                reference={**before.reference, **state.reference},
            )
        )

    def _tokens(self, state: State) -> tuple[dict[str, Mask], dict[str, Spectrum]]:
        masks, spectra = {}, {}
        for name, covariance in state.covariances.items():
            if covariance.is_diagonal:
                block, before = state.blocks[name], self._state.projections.get(name)
                dtype = state.reference[block.weight].dtype
                found = analyse(block, covariance, self.rule, frobenius=False, dtype=dtype)
                spectra[name], mask = found
                if isinstance(mask, Mask):
                    held = before.free if isinstance(before, Mask) else torch.ones_like(mask.free)
                    masks[name] = Mask(mask.free * held)
        return masks, spectra

    def _switch(self, state: State) -> None:
        """Switch as any memory does, but leave its rule nothing to analyse."""
        super()._replace(replace(state, covariances={}))
        self._state = state


def _held(block: Block, projection: Projection, values: Mapping[str, Tensor]) -> float:
    """``⟨D, D (I − P)⟩`` of a block's displacement D."""
    weight = weight_matrix(block, values[block.weight])
    constants = [bias[..., None] for bias in bias_vectors(block, values)]
    stacked = torch.cat([weight, *constants], -1)
    kept = stacked.clone()
    projection.to(device=kept.device, dtype=kept.dtype).apply_(kept)
    return float((stacked * (stacked - kept)).sum())
