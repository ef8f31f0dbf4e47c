"""Normalisation layers by type; their statistics copied, written back, and refused if foreign."""

import copy

import pytest
import torch
from torch import nn

from nscl.errors import ModelMismatchError
from nscl.models.norms import (
    check_statistics,
    copy_statistics,
    layers_with_statistics,
    norm_layers,
    set_statistics,
)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.Sequential(nn.LayerNorm(3), nn.BatchNorm2d(2, momentum=None)),
        nn.BatchNorm2d(2, track_running_stats=False),
        nn.InstanceNorm2d(2),
    )


def test_layers_are_found_by_type_and_those_with_statistics_by_their_buffers() -> None:
    names = [name for name, _ in norm_layers(network(), prefix="backbone")]
    assert names == [f"backbone.{name}" for name in ("1", "2.0", "2.1", "3", "4")]
    assert list(layers_with_statistics(network())) == ["1", "2.1"]


def test_copies_are_independent_and_written_into_the_layers_own_buffers() -> None:
    model = network()
    layers = layers_with_statistics(model)
    kept, buffers = copy_statistics(layers), [id(b) for b in model.buffers()]
    model[1](torch.randn(4, 3, 5, 5) + 3)
    assert model[1].num_batches_tracked == 1
    assert not torch.equal(model[1].running_mean, kept["1"]["running_mean"])
    set_statistics(layers, kept)
    assert model[1].num_batches_tracked == 0
    assert torch.equal(model[1].running_mean, torch.zeros(3))
    assert [id(b) for b in model.buffers()] == buffers


def test_statistics_of_another_network_are_named() -> None:
    layers = layers_with_statistics(network())
    good = copy_statistics(layers)
    check_statistics(layers, good, place="task 0")
    wide, other, short = (copy.deepcopy(good) for _ in range(3))
    wide["1"]["running_var"] = torch.ones(4)
    other["7"] = other.pop("1")
    del short["2.1"]["num_batches_tracked"]
    for bad, message in (
        (wide, r"task 0: 1\.running_var has shape \[4\], the model's \[3\]"),
        (other, r"task 0 are of layers \['2\.1', '7'\], the model has \['1', '2\.1'\]"),
        (short, r"2\.1\.num_batches_tracked has shape None, the model's \[\]"),
        (None, "task 0 are of layers None"),
    ):
        with pytest.raises(ModelMismatchError, match=message):
            check_statistics(layers, bad, place="task 0")
