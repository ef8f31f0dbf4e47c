import torch
from torch import nn

from nscl.models import build_model
from nscl.models.networks.resized import Resized


def test_pictures_grow_bilinearly_and_shrink_antialiased() -> None:
    ramp = torch.arange(4.0).expand(1, 1, 4, 4)
    grown = Resized(nn.Identity(), 8)(ramp)[0, 0, 0]
    assert grown.tolist() == [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]
    checks = (torch.arange(64) % 2).float().view(1, 1, 8, 8)
    shrunken = Resized(nn.Identity(), 2)(checks)
    # Without antialiasing, some columns would be picked and others ignored.
    assert bool((shrunken - 0.5).abs().max() < 0.1)


def test_a_model_resizes_what_it_is_given() -> None:
    model = build_model(
        "convnet", image_shape=(3, 4, 4), size=12, classes_per_task=[2], options={"depth": 3}
    )
    assert model(torch.zeros(2, 3, 4, 4), 0).shape == (2, 2)
    assert all(name.startswith("backbone.network.") for name, _ in model.backbone_parameters())
