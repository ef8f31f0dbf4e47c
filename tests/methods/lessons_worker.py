"""One rank of ``test_two_ranks_learn_as_one``: a part of fixed batches, some of them empty."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from nscl.core.ranks import sum_over_ranks
from nscl.methods.controller import Controller, drawn
from nscl.methods.lessons import Lessons
from nscl.methods.policy_fisher import policy_fisher
from nscl.methods.straight_through import relaxed
from nscl.methods.super_kernels import SuperNet
from nscl.models import MultiHead


def everything(*, rank: int, ranks: int) -> dict[str, Tensor]:
    """A fixed controller after two steps, and Fisher information under its decisions."""
    torch.manual_seed(0)
    net = SuperNet(1, [(4, 1), (8, 2)], kernels=(3, 1))
    model, controller = MultiHead(net, [3]).double(), Controller(1, (2, 2)).double()
    sizes = (5, 4, 1)  # of the last one the second rank has nothing
    whole = [(torch.randn(n, 1, 6, 6).double(), torch.randint(0, 3, (n,))) for n in sizes]
    mine = [(x[rank::ranks], y[rank::ranks]) for x, y in whole]
    lessons = Lessons(controller, rate=0.01)
    for images, _ in mine[:2]:
        lessons.clear()
        controller(images).square().sum((1, 2)).mean().backward()
        lessons.step(len(images))
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


def main(folder: Path, rank: int) -> None:
    """Meet the other rank through a file, and write what was found."""
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.save(everything(rank=rank, ranks=2), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
