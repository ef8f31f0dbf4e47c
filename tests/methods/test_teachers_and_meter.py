"""The small shared parts: copies that teach, several heads at once, means over an epoch."""

import torch

from nscl.methods.meter import Meter
from nscl.methods.teachers import features_at_rest, frozen_copy, head_logits, learning_copy
from nscl.models import build_model
from tests.methods.setups import frozen, moved


def test_several_heads_in_one_product() -> None:
    model = build_model("mlp", image_shape=(1, 4, 4), classes_per_task=(2, 3, 1), width=8).double()
    images = torch.randn(5, 1, 4, 4, dtype=torch.float64)
    found = head_logits(model, model.backbone(images), (2, 0, 1))
    assert torch.allclose(found, torch.cat([model(images, task) for task in (2, 0, 1)], 1))


def test_copies_learn_or_do_not_and_share_nothing() -> None:
    model = build_model("convnet", image_shape=(1, 8, 8), classes_per_task=(2,), width=4)
    still = frozen_copy(model)
    pupil = learning_copy(still)
    assert not any(p.requires_grad for p in still.parameters())
    assert all(p.requires_grad for p in pupil.parameters())
    assert (still.training, pupil.training, model.training) == (False, True, True)
    before = frozen(still.state_dict())
    for network in (model, pupil):
        network(torch.randn(8, 1, 8, 8), 0).sum().backward()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(1.0)
    assert not moved(before, still.state_dict())


def test_features_at_rest_move_no_statistics() -> None:
    model = build_model("convnet", image_shape=(1, 8, 8), classes_per_task=(2,), width=4)
    before = frozen(model.state_dict())
    features = features_at_rest(model.backbone, torch.randn(8, 1, 8, 8))
    assert not features.requires_grad
    assert not moved(before, model.state_dict())
    assert model.backbone.training


def test_a_meter_stopped_half_way_ends_with_the_same_means() -> None:
    whole, first, second = Meter(), Meter(), Meter()
    for meter in (whole, first):
        meter.add(3, kd=torch.tensor(1.0), other=5.0)
    second.load_state_dict(first.state_dict())
    for meter in (whole, second):
        meter.add(1, kd=3.0)
    assert second.read() == whole.read() == {"kd": 1.5, "other": 5.0}
    assert whole.read() == {}
