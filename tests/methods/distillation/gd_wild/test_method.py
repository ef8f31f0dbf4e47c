"""GD-WILD: its loss, its three phases, and the runs it refuses."""

import math
from pathlib import Path

import pytest
import torch

from nscl.errors import NsclError
from nscl.methods.base import Phase
from nscl.methods.distillation.gd_wild.method import GDWild
from nscl.training.experiment import run
from nscl.training.optimizers import set_rates
from tests.methods.distillation.gd_wild.gd_wild_setup import OPTIONS, at_task, gd
from tests.methods.setups import batch_of, frozen, moved, train
from tests.runs import small

CONVNET = {"name": "convnet", "width": 4}


def loss_written_out(method: GDWild, batch: object, mixed: object, *, weighted: bool) -> float:
    """G1 + G2 + G3 with plain numbers, sample by sample."""
    model, p_net, c_net = method.model, method.previous, method.current
    assert p_net is not None
    assert c_net is not None
    with torch.no_grad():
        m = torch.cat([model(mixed.images, t) for t in range(batch.task + 1)], 1)
        p = torch.cat([p_net(mixed.images, t) for t in range(batch.task)], 1)
        c = c_net(mixed.images, batch.task)
    l, inc = p.shape[1], c.shape[1]  # noqa: E741
    r, total = l + inc, len(m)
    counts = method.sources.counts(batch.task).tolist()

    def weight(label: int, low: int, high: int) -> float:
        if not weighted or not low <= label < high:
            return 1.0
        return sum(counts[low:high]) / (counts[label] * (high - low))

    def kl(teacher: torch.Tensor, student: torch.Tensor) -> float:
        q, s = (teacher / 2).softmax(0), (student / 2).softmax(0)
        return float((q * (q / s).log()).sum())

    g1 = g2 = g3 = 0.0
    for row, label in enumerate(mixed.labels.tolist()):
        answer = m[row].softmax(0)
        if label < r:
            g1 -= weight(label, 0, r) * math.log(float(answer[label])) / total
        else:
            pp, cc = p[row].softmax(0), c[row].softmax(0)
            k = int(pp.argmax())
            q = [float(v) * (l - 1) / (r - 1) for v in pp]
            q[k] = float(pp[k])
            q += [float(v) * (1 - float(pp[k])) * inc / (r - 1) for v in cc]
            g1 += sum(a * math.log(a / float(b)) for a, b in zip(q, answer, strict=True)) / total
        g2 += weight(label, 0, l) * kl(p[row], m[row, :l]) * 4 * l / r / total
        g3 += weight(label, l, r) * kl(c[row], m[row, l:]) * 4 * inc / r / total
    return g1 + 0.5 * (g2 + g3)


@pytest.mark.parametrize("phase", [Phase("main"), Phase("finetune")])
def test_the_loss_is_the_one_written_out(
    phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, method = at_task(2, tmp_path, options={"strength": 0.5})
    setup.model.double()
    for network in (method.previous, method.current):
        assert network is not None
        network.double()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    batch = batch_of(setup, 2, 5)
    torch.manual_seed(3)
    mixed = method.sources.mix(batch)
    monkeypatch.setattr(method.sources, "mix", lambda _: mixed)
    truth = loss_written_out(method, batch, mixed, weighted=phase.name == "finetune")
    assert method.loss(batch, phase).loss.item() == pytest.approx(truth, rel=1e-6)
    assert method.metrics()["kd"] > 0


def test_a_step_mixes_old_and_external_images_in(tmp_path: Path) -> None:
    setup, method = at_task(2, tmp_path)
    batch = batch_of(setup, 2, 100)
    mixed = method.sources.mix(batch)
    old = round(100 * 30 / len(setup.stream[2].train))  # the whole budget, over 4 classes
    assert mixed.labelled == 100 + old
    assert len(mixed.images) == len(mixed.labels) == 2 * mixed.labelled
    assert set(mixed.labels[:100].tolist()) == {4, 5}
    assert set(mixed.labels[100 : mixed.labelled].tolist()) <= {0, 1, 2, 3}
    assert set(mixed.labels[mixed.labelled :].tolist()) == {6}
    assert method.sources.counts(2).sum() == pytest.approx(len(setup.stream[2].train) + 30)


def test_only_the_teacher_learns_in_init(tmp_path: Path) -> None:
    setup, method = at_task(1, tmp_path, model=CONVNET)
    before = frozen(setup.model.state_dict())
    init, main, finetune = method.phases(1)
    train(setup, 1, init)
    assert not moved(before, setup.model.state_dict())
    assert method.previous is not None
    assert method.current is not None
    assert not moved(before, method.previous.state_dict())
    changed = moved(before, method.current.state_dict())
    assert {"backbone.convs.0.weight", "backbone.norms.0.running_mean", "heads.1.bias"} <= changed
    assert not any(name.startswith(("heads.0", "heads.2")) for name in changed)
    assert method.metrics()["confidence"] > 0

    teacher = frozen(method.current.state_dict())
    train(setup, 1, main)
    assert not moved(teacher, method.current.state_dict())
    assert not moved(before, method.previous.state_dict())
    changed = moved(before, setup.model.state_dict())
    assert {"backbone.convs.0.weight", "heads.0.weight", "heads.1.weight"} <= changed

    before = frozen(setup.model.state_dict())
    train(setup, 1, finetune)
    heads = {f"heads.{i}.{kind}" for i in range(2) for kind in ("weight", "bias")}
    assert moved(before, setup.model.state_dict()) == heads


def test_the_first_task_trains_the_network_itself(tmp_path: Path) -> None:
    setup, method = at_task(0, tmp_path)
    (init,) = method.phases(0)
    before = frozen(setup.model.state_dict())
    train(setup, 0, init)
    assert "backbone.layers.0.weight" in moved(before, setup.model.state_dict())


@pytest.mark.parametrize("pool", ["procedural", "none"])
def test_the_teacher_learns_to_be_unsure_of_old_and_external_images(
    pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The confidence loss written out: KL(U ‖ C) over everything that is not of the task."""
    setup, method = at_task(2, tmp_path, options={"pool": pool, "confidence": 0.6})
    batch = batch_of(setup, 2, 64)
    mixed = method.sources.mix(batch)
    monkeypatch.setattr(method.sources, "mix", lambda _: mixed)
    old = mixed.labelled - 64
    external = len(mixed.images) - mixed.labelled
    assert old > 0
    assert (external > 0) == (pool != "none")
    entropy = unsure = 0.0
    for row, image in enumerate(mixed.images):
        with torch.no_grad():
            p = method.current(image[None], 2)[0].double().softmax(0).tolist()
        if row < 64:
            entropy -= math.log(p[int(batch.labels[row])]) / 64
        else:
            kl = sum(math.log((1 / len(p)) / value) / len(p) for value in p)
            unsure += kl / (old + external)
    found = method.loss(batch, Phase("init")).loss.item()
    assert found == pytest.approx(entropy + 0.6 * unsure, rel=1e-5)
    assert method.metrics()["confidence"] == pytest.approx(unsure, rel=1e-4)


def test_heads_are_balanced_at_their_own_rate(tmp_path: Path) -> None:
    """One plain step moves every head by finetune_rate · rate · gradient, and nothing else."""
    optim = {"name": "sgd", "momentum": 0.0, "lr": 0.05, "epochs": 4}
    setup, method = at_task(1, tmp_path, options={"finetune_rate": 0.3}, optim=optim)
    finetune = method.phases(1)[-1]
    optimizer = method.optimizer(1, finetune)
    set_rates(optimizer, setup.loaders.config.optim, 0, finetune.epochs)
    before = frozen(setup.model.state_dict())
    method.loss(batch_of(setup, 1), finetune).loss.backward()
    weight, bias = (p.grad for group in optimizer.param_groups for p in group["params"])
    optimizer.step()
    after = setup.model.state_dict()
    for kind, gradient in (("weight", weight), ("bias", bias)):
        names = [f"heads.{head}.{kind}" for head in range(2)]
        step = torch.cat([after[name] - before[name] for name in names])
        assert torch.allclose(step, -0.3 * 0.05 * gradient, rtol=1e-4, atol=1e-8)
        assert gradient.abs().max() > 1e-3


def test_half_precision_answers_are_compared_in_float32(tmp_path: Path) -> None:
    """Under autocast logits are bfloat16: the loss is that of these numbers in full precision."""
    setup, method = at_task(2, tmp_path)
    mixed = method.sources.mix(batch_of(setup, 2))
    half = [torch.randn(len(mixed.images), width).div(10).bfloat16() for width in (6, 4, 2)]
    exact = method._global_loss(*(z.double() for z in half), mixed, None)
    with torch.autocast("cpu", torch.bfloat16):
        found = method._global_loss(*half, mixed, None)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(exact.item(), rel=1e-6)


def test_ninety_ten(tmp_path: Path) -> None:
    _, method = gd(tmp_path, optim={"epochs": 20})
    assert [(p.name, p.epochs) for p in method.phases(1)] == [
        ("init", None),
        ("main", 18),
        ("finetune", 2),
    ]


def test_the_confidence_loss_makes_the_teacher_unsure(tmp_path: Path) -> None:
    def after_training(weight: float) -> float:
        setup, method = at_task(1, tmp_path, options={"confidence": weight})
        train(setup, 1, Phase("init"), steps=40)
        method.metrics()
        method.loss(batch_of(setup, 1, 64), Phase("init"))
        return method.metrics()["confidence"]

    assert after_training(1.0) < 0.5 * after_training(0.0)


def test_a_teacher_sure_beyond_float32_breaks_nothing(tmp_path: Path) -> None:
    setup, method = at_task(1, tmp_path)
    assert method.previous is not None
    with torch.no_grad():
        method.previous.head(0).weight.mul_(1e4)
    method.loss(batch_of(setup, 1), Phase("main")).loss.backward()
    assert all(p.grad.isfinite().all() for p in setup.model.backbone.parameters())


def test_without_a_pool_the_previous_and_the_new_teacher_remain(tmp_path: Path) -> None:
    setup, method = at_task(1, tmp_path, options={"pool": "none"})
    mixed = method.sources.mix(batch_of(setup, 1))
    assert len(mixed.images) == mixed.labelled
    result = run(small("gd-wild", tmp_path, options={"pool": "none"}, optim={"epochs": 1}))
    assert result.notes == {"pool": "none", "coreset": 100}


def test_it_runs_with_statistics_frozen_after_the_first_task(tmp_path: Path) -> None:
    given = {"model": CONVNET, "bn_stats": "frozen", "optim": {"epochs": 1}, "options": OPTIONS}
    result = run(small("gd-wild", tmp_path, **given))
    assert result.notes == {"pool": "procedural+current", "coreset": 30}
    assert result.stores == "data"


def test_domain_streams_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NsclError, match="is for task streams"):
        run(small("gd-wild", tmp_path, data={"scenario": "domain"}))
