"""One rank of ``test_two_ranks_find_what_one_process_finds``: takes every other row."""

import torch
from torch import Tensor

from nscl.methods.regularization.fisher import Estimator, fisher
from nscl.methods.regularization.per_sample_grads import Unit
from nscl.models import MLP, MultiHead
from tests.runs import as_rank

CASES: tuple[tuple[Estimator, Unit], ...] = (
    ("true", "sample"),
    ("argmax", "sample"),
    ("empirical", "batch"),
    ("argmax", "batch_scaled"),
    ("sketched", "sample"),
    ("sampled", "sample"),
    ("sketched", "batch"),
)


def everything(*, rank: int, ranks: int) -> dict[str, Tensor]:
    """Importances of a fixed network, of this rank's part of fixed batches."""
    torch.manual_seed(0)
    model = MultiHead(MLP(6, width=4), [3]).double()
    whole = [(torch.randn(n, 6).double(), torch.randint(0, 3, (n,))) for n in (5, 4, 1)]
    mine = [(x[rank::ranks], y[rank::ranks]) for x, y in whole]
    shared = dict(model.backbone_parameters())
    return {
        f"{estimator}/{unit}/{name}": value
        for estimator, unit in CASES
        for name, value in fisher(
            model, mine, task=0, parameters=shared, estimator=estimator, unit=unit
        ).items()
    }


if __name__ == "__main__":
    as_rank(everything)
