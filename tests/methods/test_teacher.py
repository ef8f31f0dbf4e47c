"""Copies of the network that teach it, and features in eval mode."""

import torch

from nscl.methods.teacher import answer, eval_features, frozen_copy, learning_copy, weights_of
from nscl.models import build_model
from tests.methods.setups import frozen, moved


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


def test_features_in_eval_mode_move_no_statistics() -> None:
    model = build_model("convnet", image_shape=(1, 8, 8), classes_per_task=(2,), width=4)
    before = frozen(model.state_dict())
    model.backbone.get_submodule("convs.0").eval()
    features = eval_features(model.backbone, torch.randn(8, 1, 8, 8))
    assert not features.requires_grad
    assert not moved(before, model.state_dict())
    assert model.backbone.training
    assert not model.backbone.get_submodule("convs.0").training  # as it was before


def test_an_answer_with_other_weights_leaves_the_module_alone() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout())
    old = weights_of(model)
    model.eval()
    x = torch.randn(6, 3)
    expected = model(x)
    model.train()
    model[2].eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    now = weights_of(model)
    assert torch.allclose(answer(model, old, x), expected)
    assert all(torch.equal(w, now[n]) for n, w in weights_of(model).items())
    assert [part.training for part in model] == [True, True, False]
