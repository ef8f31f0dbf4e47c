"""Heads per task, one head for all, one that grows: isolation, names, growth."""

import pytest
import torch
from torch import nn

from nscl.models import MLP, ConvNet, GrowingHead, ModelError, MultiHead, SingleHead


def small(**options) -> MultiHead:
    return MultiHead(ConvNet(1, width=2, depth=2), [2, 3, 4], **options)


def test_a_gradient_through_one_head_touches_no_other():
    torch.manual_seed(0)
    model = small()
    model(torch.randn(4, 1, 8, 8), task=2).logsumexp(1).sum().backward()
    for task in (0, 1):
        assert all(parameter.grad is None for _, parameter in model.head_parameters(task))
    for _, parameter in (*model.head_parameters(2), *model.backbone_parameters(norms=False)):
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


def test_logits_are_those_of_the_asked_head():
    torch.manual_seed(0)
    model = small().double().eval()
    x = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    features = model.backbone(x)
    for task, head in enumerate(model.heads):
        torch.testing.assert_close(model(x, task), features @ head.weight.T + head.bias)
    assert [model(x, task).shape[1] for task in range(3)] == model.classes_per_task == [2, 3, 4]


def test_the_three_kinds_of_parameters_are_the_whole_model_under_its_own_names():
    model = small()
    everything = dict(model.named_parameters())
    weights = dict(model.backbone_parameters(norms=False))
    norms = dict(model.norm_parameters())
    own = {name: p for task in range(3) for name, p in model.head_parameters(task)}
    assert weights | norms == dict(model.backbone_parameters())
    assert {name: id(p) for name, p in (weights | norms | own).items()} == {
        name: id(p) for name, p in everything.items()
    }
    assert len(weights) + len(norms) + len(own) == len(everything)
    assert sorted(own) == [f"heads.{t}.{part}" for t in range(3) for part in ("bias", "weight")]
    assert all(name.startswith("backbone.norms.") for name in norms)


def test_norm_parameters_are_found_by_type_wherever_they_are():
    layers = [
        nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.SyncBatchNorm(4),
        nn.InstanceNorm2d(4, affine=True), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4),
        nn.InstanceNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.Linear(4, 4), nn.PReLU(4),
    ]  # fmt: skip
    backbone = nn.Sequential(nn.Sequential(*layers), nn.Sequential(layers[0]))
    model = MultiHead(backbone, [2], features=4)
    found = dict(model.norm_parameters())
    want = [p for layer in layers[:7] for p in layer.parameters()]
    assert {id(p) for p in found.values()} == {id(p) for p in want}
    assert len(found) == 13
    assert "backbone.0.4.weight" in found
    assert set(dict(model.backbone_parameters(norms=False))) == {
        "backbone.0.9.weight", "backbone.0.9.bias", "backbone.0.10.weight"
    }  # fmt: skip


def test_heads_can_come_later_in_the_type_and_place_of_the_backbone():
    model = MultiHead(MLP(4, width=3).double())
    assert model.add_head(5) == 0
    assert model.add_head(6) == 1
    assert model.classes_per_task == [5, 6]
    assert model(torch.zeros(2, 1, 2, 2, dtype=torch.float64), 1).dtype == torch.float64
    model = MultiHead(MLP(4, width=3).to("meta"), [2])
    assert model.head(0).weight.device.type == "meta"


def test_heads_from_the_start_and_heads_added_draw_the_same_weights():
    torch.manual_seed(0)
    early = small()
    torch.manual_seed(0)
    late = MultiHead(ConvNet(1, width=2, depth=2))
    for classes in (2, 3, 4):
        late.add_head(classes)
    for a, b in zip(early.parameters(), late.parameters(), strict=True):
        assert torch.equal(a, b)


def test_one_head_answers_for_every_task():
    model = SingleHead(MLP(4, width=3), 5)
    x = torch.randn(2, 1, 2, 2)
    assert torch.equal(model(x, 0), model(x, 17))
    assert dict(model.head_parameters(0)).keys() == {"shared_head.weight", "shared_head.bias"}
    assert model.add_head(5) == 0
    assert len(list(model.parameters())) == 6
    with pytest.raises(ModelError, match="has 5 classes, the new task has 6"):
        model.add_head(6)
    with pytest.raises(ModelError, match="task must be an integer"):
        model(x, -1)


def test_a_growing_head_answers_with_all_classes_so_far():
    torch.manual_seed(0)
    model = GrowingHead(MLP(4, width=3), [2, 3, 4]).double().eval()
    x = torch.randn(5, 1, 2, 2, dtype=torch.float64)
    features = model.backbone(x)
    weight = torch.cat([model.head(task).weight for task in range(3)])
    bias = torch.cat([model.head(task).bias for task in range(3)])
    for task, classes in enumerate((2, 5, 9)):
        truth = features @ weight[:classes].T + bias[:classes]
        torch.testing.assert_close(model(x, task), truth)
        torch.testing.assert_close(model(x, range(task + 1)), truth)
    assert model.classes_per_task == [2, 3, 4]
    assert model.softmax_sizes(range(2)) == [5]
    assert MultiHead.softmax_sizes(model, range(2)) == [2, 3]


def test_rows_of_a_growing_head_learn_with_all_later_tasks_and_not_before_their_own():
    model = GrowingHead(MLP(4, width=3), [2, 3, 4])
    model(torch.randn(4, 1, 2, 2), 1).logsumexp(1).sum().backward()
    names = [f"heads.{task}.{part}" for task in (0, 1) for part in ("weight", "bias")]
    assert [name for name, _ in model.answering_parameters(1)] == names
    assert all(p.grad.abs().sum() > 0 for _, p in model.answering_parameters(1))
    assert all(p.grad is None for _, p in model.head_parameters(2))
    assert [name for name, _ in model.head_parameters(1)] == names[2:]
    for task in (3, -1):
        with pytest.raises(ModelError, match=f"no head for task {task}: 3 heads"):
            model(torch.zeros(1, 1, 2, 2), task)


def test_a_growing_head_begins_with_the_weights_of_heads_per_task():
    torch.manual_seed(0)
    apart = MultiHead(MLP(4, width=3), [2, 3])
    torch.manual_seed(0)
    assert not GrowingHead(MLP(4, width=3)).classes_per_task
    torch.manual_seed(0)
    grown = GrowingHead(MLP(4, width=3), [2, 3])
    assert all(map(torch.equal, apart.parameters(), grown.parameters()))


@pytest.mark.parametrize("task", [3, -1, True, 0.0, None])
def test_a_head_that_is_not_there_is_named(task):
    with pytest.raises(ModelError, match=r"there is no head for task .*: 3 heads"):
        small()(torch.zeros(2, 1, 8, 8), task)


def test_a_backbone_that_does_not_say_its_width_is_refused():
    with pytest.raises(ModelError, match="Flatten has no out_features"):
        MultiHead(nn.Flatten(), [2])
    assert MultiHead(nn.Flatten(), [2], features=4)(torch.zeros(3, 1, 2, 2), 0).shape == (3, 2)


@pytest.mark.parametrize("classes", [0, -1, 2.0, None])
def test_a_task_has_classes(classes):
    for make in (lambda: MultiHead(MLP(4), [classes]), lambda: SingleHead(MLP(4), classes)):
        with pytest.raises(ModelError, match="number of classes of a task"):
            make()
