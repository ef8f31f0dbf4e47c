"""One rank of ``test_two_ranks_learn_as_one``: a part of fixed batches, some of them empty."""

import torch
from torch import Tensor

from nscl.core.distributed.collectives import sum_over_ranks
from nscl.methods.instaparam.auxiliary_optimizer import AuxiliaryOptimizer
from nscl.methods.instaparam.controller import Controller, drawn
from nscl.methods.instaparam.policy_fisher import policy_fisher
from nscl.methods.instaparam.straight_through import relaxed
from nscl.methods.instaparam.super_kernels import SuperNet
from nscl.models import MultiHead
from tests.runs import as_rank


def everything(*, rank: int, ranks: int) -> dict[str, Tensor]:
    """A fixed controller after two steps, and Fisher information under its decisions."""
    torch.manual_seed(0)
    net = SuperNet(1, [(4, 1), (8, 2)], kernels=(3, 1))
    model, controller = MultiHead(net, [3]).double(), Controller(1, (2, 2)).double()
    sizes = (5, 4, 1)  # of the last one the second rank has nothing
    whole = [(torch.randn(n, 1, 6, 6).double(), torch.randint(0, 3, (n,))) for n in sizes]
    mine = [(x[rank::ranks], y[rank::ranks]) for x, y in whole]
    optimizer = AuxiliaryOptimizer(controller, rate=0.01)
    for images, _ in mine[:2]:
        optimizer.zero_grad()
        controller(images).square().sum((1, 2)).mean().backward()
        optimizer.step(len(images))
    found = policy_fisher(
        model,
        mine,
        task=0,
        parameters=dict(model.backbone_parameters()),
        decide=lambda images: controller(images) >= 0.5,
    )
    return {**controller.state_dict(), **found, "trials": trials(rank=rank, ranks=ranks)}


def trials(*, rank: int, ranks: int) -> Tensor:
    """Hard and soft trials of a batch of five, each process's in its rows."""
    p = torch.full((5, 2, 2), 0.5).double()[rank::ranks]
    whole = torch.zeros(2, 5, 2, 2).double()
    whole[0, rank::ranks] = drawn(p).double()
    whole[1, rank::ranks] = relaxed(p, temperature=1.0)
    return sum_over_ranks(whole)


if __name__ == "__main__":
    as_rank(everything)
