"""Models by name, anyone's model by path, and an answer to every mistake."""

import subprocess
import sys

import pytest
import torch

from nscl.errors import NsclError
from nscl.models import (
    GrowingHead,
    ModelError,
    MultiHead,
    SingleHead,
    build_model,
    list_models,
)

SHAPE = (1, 8, 8)

THEIRS = '''
"""Somebody's models."""
import torch
from torch import nn

def plain(image_shape):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.BatchNorm1d(image_shape[0] * 64),
                         nn.Linear(image_shape[0] * 64, 7))

def lazy(image_shape, hidden=5):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(hidden))

class Net(nn.Module):
    def __init__(self, image_shape, *, width=6):
        super().__init__()
        self.out_features = width
        self.fc = nn.Linear(64, width)
    def forward(self, x):
        return self.fc(x.flatten(1))

def maps(image_shape): return nn.Conv2d(1, 2, 3)
'''


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    (tmp_path / "their_models.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(tmp_path)
    yield "their_models"
    sys.modules.pop("their_models", None)


def build(name, **options):
    return build_model(name, **{"image_shape": SHAPE, "classes_per_task": [2, 3], **options})


def test_listing_needs_no_torch():
    code = (
        "import sys, nscl.models as m\n"
        "print(*[i.name for i in m.list_models() if i.description], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [info.name for info in list_models()] + ["False"]
    assert done.stdout.split()[:3] == ["resnet18", "convnet", "mlp"]


# Others take colour or texts only: tests/models/networks.
@pytest.mark.parametrize("name", ["resnet18", "convnet", "mlp"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 28, 28)])
def test_every_named_model_is_built_and_answers(name, shape):
    model = build(name, image_shape=shape, width=4)
    assert isinstance(model, MultiHead)
    assert model(torch.randn(2, *shape), 1).shape == (2, 3)
    assert model.features == model.backbone.out_features
    assert all(part.training for part in model.modules())


def test_width_and_options_reach_the_network():
    assert build("resnet18").features == 512
    assert build("resnet18", width=20).features == 160
    assert build("convnet", width=4, options={"depth": 2}).features == 8


def test_the_domain_scenario_has_one_head():
    model = build("mlp", scenario="domain", classes_per_task=[10, 10])
    assert isinstance(model, SingleHead)
    assert model(torch.zeros(2, *SHAPE), 1).shape == (2, 10)


def test_the_class_scenario_has_one_head_that_grows():
    model = build("mlp", scenario="class", classes_per_task=[2, 3])
    assert isinstance(model, GrowingHead)
    assert model(torch.zeros(2, *SHAPE), 1).shape == (2, 5)


def test_building_draws_only_the_weights():
    """The probe must not move the random stream that data order depends on."""
    torch.manual_seed(0)
    build("convnet", width=4)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    from nscl.models import ConvNet

    MultiHead(ConvNet(1, width=4), [2, 3])
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize(("factory", "features"), [("plain", 7), ("lazy", 5), ("Net", 6)])
def test_anyones_backbone(theirs, factory, features):
    model = build(f"{theirs}:{factory}")
    assert model.features == features
    assert all(part.training for part in model.modules())
    assert model(torch.zeros(3, *SHAPE), 1).shape == (3, 3)


def test_options_reach_anyones_backbone(theirs):
    assert build(f"{theirs}:lazy", options={"hidden": 9}).features == 9
    assert build(f"{theirs}:Net", width=8).features == 8


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "resnet-18",
            {},
            "no model 'resnet-18' (did you mean 'resnet18'?); choose resnet18, convnet",
        ),
        ("zzz", {}, "no model 'zzz'; choose"),
        ("mlp", {"scenario": "domian"}, "no scenario 'domian' (did you mean 'domain'?)"),
        ("mlp", {"scenario": "domain"}, "same number of classes in each, got [2, 3]"),
        ("mlp", {"classes_per_task": []}, "classes_per_task is empty"),
        ("mlp", {"width": 0}, "width must be an integer of at least 1, got 0"),
        ("mlp", {"image_shape": (8, 8)}, "image_shape must be (channels, height, width)"),
        ("resnet18", {"options": {"depth": 3}}, "'resnet18' has no option 'depth': it has width"),
        ("their_models:", {}, "write package.module:factory"),
        ("their_models:plian", {}, "did you mean 'plain'?"),
        ("their_models:maps", {}, "got [2, 2, 6, 6]: flatten its output"),
    ],
)
def test_every_mistake_is_answered_in_one_line(theirs, name, options, message):
    with pytest.raises(ModelError) as caught:
        build(name, **options)
    assert isinstance(caught.value, NsclError)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
