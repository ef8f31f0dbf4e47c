"""A block's displacement, cut into what each rank holds, against the whole projected at once."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nscl.core.model.block import Bias, Block, bias_vectors, weight_matrix
from nscl.core.model.inventory import take_inventory
from nscl.core.projection.block_update import block_updates, hold_bias
from nscl.core.projection.low_rank_projector import Mask, Projection
from nscl.errors import UnsupportedError


@dataclass
class Mesh:
    """As many ranks as asked for, without any process."""

    ranks: int
    rank: int

    def size(self, dim: int) -> int:
        return self.ranks

    def get_local_rank(self, dim: int) -> int:
        return self.rank


class Dimension0:
    """The placement of a shard of dimension 0."""

    def is_replicate(self) -> bool:
        return False

    def is_shard(self, dim: int) -> bool:
        return dim == 0


@dataclass
class Sharded:
    """What is asked of a sharded parameter when it is cut."""

    shape: torch.Size
    device_mesh: Mesh
    placements: list[Dimension0] = field(default_factory=lambda: [Dimension0()])

    @property
    def ndim(self) -> int:
        return len(self.shape)


def by_hand(block: Block, projection: Projection, deltas: dict[str, Tensor]) -> list[Tensor]:
    """Weight and biases of the block, times the dense projector of each group."""
    V = projection.basis
    P = torch.eye(V.shape[1], dtype=V.dtype) - V @ V.mT
    biases = bias_vectors(block, deltas)
    whole = torch.cat(
        [weight_matrix(block, deltas[block.weight]), *(b[..., None] for b in biases)], -1
    )
    moved = whole @ P
    return [moved[..., : block.features], *moved[..., block.features :].unbind(-1)]


def projection_for(block: Block) -> Projection:
    basis = torch.linalg.qr(torch.randn(block.groups, block.width, 2, dtype=torch.float64)).Q
    return Projection(basis, removes=True)


def displacements(layer: nn.Module) -> dict[str, Tensor]:
    return {name: torch.randn_like(p) for name, p in layer.named_parameters()}


LAYERS: dict[str, nn.Module] = {
    "linear": nn.Linear(4, 7),
    "groups that straddle shards": nn.Conv1d(6, 9, 2, groups=3),
    "a third of a packed weight": nn.MultiheadAttention(4, 2),
    "transposed": nn.ConvTranspose1d(4, 6, 2, groups=2),
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("name", list(LAYERS)[:3])
def test_shards_of_any_number_are_projected_as_the_whole(name: str, ranks: int) -> None:
    layer = LAYERS[name].double()
    for block in take_inventory(layer).blocks.values():
        projection, deltas = projection_for(block), displacements(layer)
        expected = by_hand(block, projection, deltas)
        parts: dict[str, list[Tensor]] = {key: [] for key in block.parameters}
        for rank in range(ranks):
            shards: dict[str, Any] = {
                key: Sharded(deltas[key].shape, Mesh(ranks, rank)) for key in block.parameters
            }
            size = {key: -(-len(deltas[key]) // ranks) for key in block.parameters}
            mine = {k: deltas[k][rank * n : (rank + 1) * n].clone() for k, n in size.items()}
            for update in block_updates(block, projection, shards):
                update.apply(mine)
            for key, value in mine.items():
                parts[key].append(value)
        found = {key: torch.cat(value) for key, value in parts.items()}
        ours = [weight_matrix(block, found[block.weight]), *bias_vectors(block, found)]
        for one, other in zip(ours, expected, strict=True):
            assert torch.allclose(one, other, atol=1e-13)


def test_a_transposed_weight_is_projected_whole_or_not_at_all() -> None:
    layer = LAYERS["transposed"].double()
    (block,) = take_inventory(layer).blocks.values()
    projection, deltas = projection_for(block), displacements(layer)
    expected = by_hand(block, projection, deltas)
    (update,) = block_updates(block, projection, deltas)
    assert update.parameters == block.parameters
    update.apply(deltas)
    ours = [weight_matrix(block, deltas["weight"]), *bias_vectors(block, deltas)]
    assert all(torch.allclose(a, b, atol=1e-13) for a, b in zip(ours, expected, strict=True))
    shards: dict[str, Any] = {k: Sharded(d.shape, Mesh(2, 0)) for k, d in deltas.items()}
    with pytest.raises(UnsupportedError, match=r"ConvTranspose1d\) is sharded along its input"):
        list(block_updates(block, projection, shards))


def test_tokens_that_were_seen_stay_in_every_shard() -> None:
    layer = nn.Embedding(5, 3)
    (block,) = take_inventory(layer).blocks.values()
    mask = Mask(torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0]))
    for rank, free in enumerate(([0, 1, 0], [1, 1])):
        shards: dict[str, Any] = {"weight": Sharded(layer.weight.shape, Mesh(2, rank))}
        mine = {"weight": torch.ones(len(free), 3)}
        for update in block_updates(block, mask, shards):
            update.apply(mine)
        assert mine["weight"].tolist() == [[float(f)] * 3 for f in free]


def test_a_held_bias_stays_where_the_block_has_it() -> None:
    block = Block("key", "Linear", "weight", 4, 8, 3, biases=(Bias("bias", 4),))
    found = []
    for rank in range(3):
        shards: dict[str, Any] = {"bias": Sharded(torch.Size((12,)), Mesh(3, rank))}
        mine = {"bias": torch.ones(4)}
        for update in hold_bias(block, block.biases[0], shards):
            update.apply(mine)
        found += mine["bias"].tolist()
    assert found == [1.0] * 4 + [0.0] * 4 + [1.0] * 4


def test_a_bias_that_is_cut_elsewhere_than_its_weight_is_refused() -> None:
    block = Block("key", "Linear", "weight", 0, 4, 3, biases=(Bias("bias", 0),))
    shards: dict[str, Any] = {
        "weight": Sharded(torch.Size((4, 3)), Mesh(2, 0)),
        "bias": Sharded(torch.Size((12,)), Mesh(12, 0)),
    }
    with pytest.raises(UnsupportedError, match=r"'bias' and 'weight' are sharded differently"):
        list(block_updates(block, projection_for(block), shards))
