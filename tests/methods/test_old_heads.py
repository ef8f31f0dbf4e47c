"""Heads in one stack: the same answers, the same learning, one pair of tensors."""

import copy

import torch
from torch import Tensor

from nscl.methods.old_heads import LearningHeads, OldHeads
from nscl.models import MLP, MultiHead

WIDTHS = (2, 4, 1, 3)


def network() -> MultiHead:
    torch.manual_seed(0)
    return MultiHead(MLP(16, width=8), WIDTHS).double()


def some_features(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 8, generator=generator, dtype=torch.float64)


def one_by_one(model: MultiHead, features: Tensor, tasks: int) -> Tensor:
    return torch.cat([model.head(task)(features) for task in range(tasks)], 1)


def test_all_heads_answer_side_by_side() -> None:
    model, features = network(), some_features()
    heads = OldHeads(model, 3, learn=False)
    assert heads.tasks == 3
    truth = one_by_one(model, features, 3)
    assert torch.allclose(heads.logits(features), truth, rtol=1e-14)
    assert torch.allclose(model.side_by_side(features, range(3)), truth, rtol=1e-14)


def test_in_a_mixed_batch_only_the_own_head_answers() -> None:
    model, features = network(), some_features()
    tasks = torch.tensor([0, 3, 2, 1, 1, 3])
    found = OldHeads(model, 4, learn=False).own_logits(features, tasks)
    for row, task in enumerate(tasks.tolist()):
        start = sum(WIDTHS[:task])
        stop = start + WIDTHS[task]
        assert torch.allclose(found[row, start:stop], model.head(task)(features[row]), rtol=1e-14)
        rest = torch.cat([found[row, :start], found[row, stop:]])
        assert (rest == -torch.inf).all()


def test_a_stack_learns_as_its_heads_would_by_themselves() -> None:
    """Heads of unequal width, Adam with decay; the fourth is not in the stack and stays."""
    ours, truth = network(), network()
    stack = LearningHeads(ours).stacked(3)
    separate = [p for task in range(3) for p in truth.head(task).parameters()]
    pairs = (
        (torch.optim.Adam(stack.parameters, 0.1, weight_decay=0.01), stack.logits),
        (torch.optim.Adam(separate, 0.1, weight_decay=0.01), lambda x: one_by_one(truth, x, 3)),
    )
    for optimizer, logits in pairs:
        for step in range(5):
            optimizer.zero_grad()
            logits(some_features(step)).log_softmax(1)[:, 1].sum().backward()
            optimizer.step()
    before = network()
    for task in range(3):
        assert not torch.equal(ours.head(task).weight, before.head(task).weight)
        assert torch.allclose(ours.head(task).weight, truth.head(task).weight, rtol=1e-12)
        assert torch.allclose(ours.head(task).bias, truth.head(task).bias, rtol=1e-12)
    assert torch.equal(ours.head(3).weight, before.head(3).weight)


def test_heads_are_stacked_once_and_released_with_their_values() -> None:
    model = network()
    heads = LearningHeads(model)
    stack = heads.stacked(3)
    assert heads.stacked(3) is stack
    with torch.no_grad():
        stack.weight.add_(1.0)
    values = copy.deepcopy(model.state_dict())
    narrower = heads.stacked(2)  # another number of heads: the former stack lets go of all
    with torch.no_grad():
        stack.weight.zero_()
    heads.release()
    with torch.no_grad():
        narrower.weight.zero_()
    assert all(torch.equal(values[name], value) for name, value in model.state_dict().items())
    heads.release()  # nothing is held any more, so nothing happens
