"""Labels of sequences are drawn for every token from its own softmax."""

import pytest
import torch
from torch import nn

import nscl
from nscl.core.covariance.packed import unpack


@pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")
def test_gradients_of_sequences_are_sums_of_the_tokens_fisher_information() -> None:
    """The logits' gradient p − y has covariance diag(p) − ppᵀ for each token."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4)).double()
    x = 4 * torch.randn(1, 5, 3).double().expand(4000, 5, 3)
    memory = nscl.Memory(model, rule=nscl.Penalty())
    batches = [x[i : i + 500] for i in range(0, 4000, 500)]
    memory.remember(batches, likelihood="categorical", temperature=1.0)
    p = model(x[0]).detach().softmax(-1)
    truth = (torch.diag_embed(p) - p[:, :, None] * p[:, None, :]).sum(0)
    found = unpack(memory.state_dict()["tensors"]["gradient/0"])[0]
    assert torch.allclose(found / found.trace(), truth / truth.trace(), atol=0.01)
    alike = torch.diag(p.mean(0)) - torch.outer(p.mean(0), p.mean(0))  # one label for all tokens
    assert not torch.allclose(found / found.trace(), alike / alike.trace(), atol=0.01)
