"""Fine-tuning is a plain training loop."""

from pathlib import Path

import torch
import torch.nn.functional as F

from nscl.methods.base import Phase
from tests.methods.setups import batch_of, made, moved, train

PHASE = Phase()


def test_fine_tuning_is_a_plain_loop(tmp_path: Path) -> None:
    ours, truth = (made("finetune", tmp_path) for _ in range(2))
    train(ours, 0, PHASE, steps=5)
    model = truth.model.train()
    optimizer = torch.optim.Adam(model.parameters(), truth.loaders.config.optim.lr)
    for step in range(5):
        batch = batch_of(truth, 0, draw=step)
        optimizer.zero_grad()
        F.cross_entropy(model(batch.images, 0), batch.labels).backward()
        optimizer.step()
    assert not moved(model.state_dict(), ours.model.state_dict())
