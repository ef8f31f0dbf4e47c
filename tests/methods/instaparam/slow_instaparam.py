"""InstAParam written down slowly: image by image, branch by branch, in float64."""

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nscl.methods.base import Batch
from nscl.methods.instaparam.method import InstAParam
from nscl.methods.instaparam.super_kernels import SuperBlock
from nscl.training.setup import Setup
from tests.methods.setups import made


def exact(tmp_path: Path, *, scenario: str = "task", **options: Any) -> tuple[Setup, InstAParam]:
    """A small InstAParam on the digits in float64, its network trained by plain SGD."""
    options = {"kernels": (5, 3, 1), "exponent": 1.0, **options}
    optim = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "batch_size": 100}
    model, data = {"name": "convnet", "width": 4}, {"scenario": scenario}
    setup = made("instaparam", tmp_path, options=options, model=model, optim=optim, data=data)
    method, load = setup.method, setup.loaders
    assert isinstance(method, InstAParam)
    method.model.double()
    method.controller.double()
    method.lab.loader = lambda *args, **kwargs: [  # type: ignore[assignment, return-value]
        (images.double(), labels) for images, labels in load(*args, **kwargs)
    ]
    return setup, method


def slow_block(block: SuperBlock, x: Tensor, policy: Tensor) -> Tensor:
    """Sample by sample, branch by branch, as the paper defines it."""
    outputs = []
    for image, row in zip(x, policy, strict=True):
        short = image[None] if block.shortcut is None else block.shortcut(image[None])
        active = [i for i, on in enumerate(row) if on]
        if not active and block.shortcut is None:
            outputs.append(image[None])
            continue
        total = torch.zeros_like(short)
        for i in active or [block.kernels.index(3)]:
            size = block.kernels[i]
            inner = F.relu(block.norm1(block.conv1(image[None], size)))
            total = total + F.relu(block.norm2(block.conv2(inner, size)) + short)
        outputs.append(total)
    return torch.cat(outputs)


def slow_mixture(block: SuperBlock, x: Tensor, weights: Tensor) -> Tensor:
    """Of one image: all policies of a block, each as much as its branches' weights say."""
    total = torch.zeros(())
    for row in itertools.product((False, True), repeat=len(block.kernels)):
        share = torch.stack([w if on else 1 - w for w, on in zip(weights, row, strict=True)]).prod()
        total = total + share * slow_block(block, x, torch.tensor([row]))
    return total


def slow_logits(method: InstAParam, image: Tensor, policy: Tensor, task: int) -> Tensor:
    """What the network answers about one image; a policy of floats mixes its blocks' policies."""
    net = method.net
    x = F.relu(net.norm(net.conv(image[None])))
    for block, row in zip(net.blocks, policy, strict=True):
        assert isinstance(block, SuperBlock)
        mixed = row.is_floating_point()
        x = slow_mixture(block, x, row) if mixed else slow_block(block, x, row[None])
    logits: Tensor = method.model.head(task)(x.mean((2, 3)))
    return logits


def slow_fisher(
    method: InstAParam, batches: Iterable[tuple[Tensor, Tensor]], task: int, names: Sequence[str]
) -> dict[str, Tensor]:
    """Mean over batches of B · (mean over images of the arg-max label's gradient)²."""
    parameters = dict(method.model.named_parameters())
    held = [parameters[name] for name in names]
    totals, count = [torch.zeros_like(p) for p in held], 0
    for images, _ in batches:
        means = [torch.zeros_like(p) for p in held]
        for image in images:
            with torch.no_grad():
                decision = method.controller(image[None])[0] >= 0.5
            logits = slow_logits(method, image, decision, task)
            likelihood = logits.log_softmax(1)[0, int(logits.argmax())]
            found = torch.autograd.grad(likelihood, held, allow_unused=True)
            for mean, gradient in zip(means, found, strict=True):
                mean += 0.0 if gradient is None else gradient / len(images)
        for total, mean in zip(totals, means, strict=True):
            total += len(images) * mean.square()
        count += 1
    return {name: total / count for name, total in zip(names, totals, strict=True)}


def slow_chances(method: InstAParam, image: Tensor) -> tuple[Tensor, Tensor]:
    """Of one image: what the controller decides, and the probabilities trials are drawn from."""
    wished = method.controller(image[None])[0]
    used = method.counts.sqrt()
    reuse = torch.zeros_like(used)
    if float(used.max()) > 0:
        for place in itertools.product(*map(range, used.shape)):
            share = float(used[place] / used.max())
            reuse[place] = 0.1 / (1 + math.exp(-10 * (share - 0.5)))
    p = 0.8 * wished + 0.2 * (1 - wished) - reuse
    return wished.detach() >= 0.5, p.clamp(1e-6, 1 - 1e-6)


def worth(inactive: int) -> float:
    return max(0.0, math.log(inactive)) if inactive else 0.0


def slow_reward(policy: Tensor, logits: Tensor, label: Tensor) -> float:
    right = int(logits.argmax()) == int(label)
    return 30.0 * worth(int((~policy).sum())) if right else 0.0


def slow_entropy(p: Tensor) -> Tensor:
    return sum((-q * q.log() - (1 - q) * (1 - q).log() for q in p.flatten()), torch.zeros(()))


def slow_reinforce(method: InstAParam, batch: Batch, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Losses of network and controller, and nothing is shared between images."""
    loss, lesson, advantages = torch.zeros(()), torch.zeros(()), []
    for image, label, draw in zip(batch.images, batch.labels, draws, strict=True):
        decision, p = slow_chances(method, image)
        trial = draw < p.detach()
        logits = slow_logits(method, image, trial, batch.task)
        decided = slow_logits(method, image, decision, batch.task)
        advantage = slow_reward(trial, logits, label) - slow_reward(decision, decided, label)
        for q, active in zip(p.flatten(), trial.flatten(), strict=True):
            lesson = lesson - (q if active else 1 - q).log() * advantage
        lesson = lesson - 0.8 * slow_entropy(p)
        loss = loss - logits.log_softmax(1)[0, int(label)]
        advantages.append(advantage)
    assert min(advantages) < 0 < max(advantages)  # or there would be nothing to see
    return loss / len(draws), lesson / len(draws)


def slow_relaxed(
    method: InstAParam, batch: Batch, draws: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The same with the trial that counts as its soft value backwards."""
    loss, lesson = torch.zeros(()), torch.zeros(())
    for image, label, draw in zip(batch.images, batch.labels, draws, strict=True):
        _, p = slow_chances(method, image)
        noise = (draw / (1 - draw)).log().double()
        soft = 1 / (1 + (-((p / (1 - p)).log() - noise) / temperature).exp())
        trial = draw < p.detach()
        through = trial.double() + soft - soft.detach()
        chance = slow_logits(method, image, through, batch.task).softmax(1)[0, int(label)]
        expected = chance * 30.0 * slow_worth(trial, through)
        lesson = lesson - expected - 0.8 * slow_entropy(p)
        loss = loss - slow_logits(method, image, trial, batch.task).log_softmax(1)[0, int(label)]
    return loss / len(draws), lesson / len(draws)


def slow_worth(trial: Tensor, through: Tensor) -> Tensor:
    """The worth of inactive branches, with the slope that switching each of them alone has."""
    inactive = int((~trial).sum())
    total = torch.tensor(worth(inactive), dtype=torch.float64)
    for place in itertools.product(*map(range, trial.shape)):
        others = inactive - int(not trial[place])
        slope = worth(others) - worth(others + 1)
        total = total + slope * (through[place] - through[place].detach())
    return total
