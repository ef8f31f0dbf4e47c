"""Parameters seen as matrices, and written back where they came from."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nscl.core.model.block import (
    Bias,
    Block,
    bias_vectors,
    outputs_per_group,
    weight_matrix,
    write_weight_matrix,
)
from nscl.core.model.inventory import take_inventory
from nscl.core.model.layer_types import LayerType, Matrix, add_layer_type


class Columns(nn.Module):
    """A linear layer stored the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(4))


class Stacked(nn.Module):
    """Three matrices in one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2, 5))
        self.bias = nn.Parameter(torch.randn(3, 2))


for _kind, _matrix in ((Columns, Matrix(layout="columns")), (Stacked, Matrix(layout="stacked"))):
    add_layer_type(_kind, layer_type=LayerType(lambda _, m=_matrix: (m,), lambda *_: ()))

LAYERS = {
    "linear": lambda: nn.Linear(3, 4),
    "conv": lambda: nn.Conv2d(4, 6, (2, 3), groups=2),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, (2, 3), groups=2),
    "attention": lambda: nn.MultiheadAttention(4, 2),
    "columns": Columns,
    "stacked": Stacked,
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
def test_matrices_go_back_where_they_came_from(make) -> None:
    layer = make()
    values = {name: p.detach() for name, p in layer.named_parameters()}
    for block in take_inventory(layer).blocks.values():
        parameter = values[block.weight]
        matrix = weight_matrix(block, parameter)
        assert matrix.shape[0] == block.groups
        assert matrix.shape[2] == block.features
        changed = parameter.clone()
        write_weight_matrix(block, matrix + 1, changed)
        assert matrix.shape[1] == outputs_per_group(block, parameter.shape)
        inside = slice(block.start, block.stop)
        rows = (slice(None), inside) if block.layout == "columns" else inside
        assert torch.allclose(changed[rows], parameter[rows] + 1)
        outside = torch.ones(parameter.shape, dtype=torch.bool)
        outside[rows] = False
        assert torch.equal(changed[outside], parameter[outside])
        for bias in bias_vectors(block, values):
            assert bias.shape == matrix.shape[:2]
            assert bias.data_ptr() >= values[block.biases[0].parameter].data_ptr()  # a view


def test_a_transposed_convolution_is_the_convolution_of_its_mirrored_matrix() -> None:
    layer = nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False).double()
    block = take_inventory(layer).blocks["model"]
    matrix = weight_matrix(block, layer.weight.detach())
    kernel = matrix.reshape(6, 2, 3, 3)
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    assert torch.allclose(layer(x), F.conv2d(x, kernel, padding=2, groups=2), atol=1e-13)


def test_an_embedding_is_its_own_matrix() -> None:
    layer = nn.Embedding(5, 3)
    block = take_inventory(layer).blocks["model"]
    assert (block.layout, block.features, block.width) == ("tokens", 5, 5)
    assert weight_matrix(block, layer.weight) is layer.weight


def test_a_block_counts_its_biases_as_features() -> None:
    block = Block("a", "Linear", "a.weight", 0, 4, 3, biases=(Bias("a.bias"), Bias("b.bias")))
    assert block.width == 5
    assert block.parameters == ("a.weight", "a.bias", "b.bias")
    assert block.shape() == "4 × 3 (rows)"
    grouped = Block("c", "Conv1d", "c.weight", 0, 4, 6, groups=2)
    assert grouped.shape() == "2 groups of 4 × 6 (rows)"


def test_signatures_tell_blocks_apart() -> None:
    block = Block("a", "Linear", "a.weight", 0, 4, 3)
    other = Block("a", "Linear", "a.weight", 0, 4, 3, biases=(Bias("a.bias"),))
    assert block.signature() != other.signature()
    assert block.signature() == Block("a", "Linear", "a.weight", 0, 4, 3).signature()
