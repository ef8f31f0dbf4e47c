"""Sizes that no network can be built from are errors."""

import pytest

from nscl.models import ModelError
from nscl.models.networks.convnet import convnet
from nscl.models.networks.mlp import mlp


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 0), (1, 8, 8.0), (1, 8, 8, 8)])
def test_impossible_shapes_are_refused(shape):
    for make in (convnet, mlp):
        with pytest.raises(ModelError, match="image_shape"):
            make(shape)


@pytest.mark.parametrize("options", [{"width": 0}, {"depth": 0}, {"width": True}])
def test_impossible_options_are_refused(options):
    for make in (convnet, mlp):
        with pytest.raises(ModelError, match="must be an integer of at least 1"):
            make((1, 8, 8), **options)
