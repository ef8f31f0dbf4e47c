"""What a memory will take, beside what it takes."""

import json
from typing import Any

import pytest
import torch
from torch import nn

import nscl
from nscl.core.checks.estimate import estimate
from nscl.core.checks.speed import Speed
from nscl.core.model.inventory import take_inventory
from nscl.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

SPEED = Speed(eigh=1e-9, precise=1e-10, single=1e-11)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(40, 8),
        nn.Unflatten(1, (2, 8)),
        nn.Conv1d(2, 6, 3, groups=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, 20),
        nn.LayerNorm(20),
        nn.Linear(20, 4, bias=False),
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank": 6},
        {"rank": 6, "offload": "disk"},
        {"rule": nscl.Ratio()},
        {"rule": nscl.Ridge(), "rank": 10},
    ],
    ids=str,
)
def test_bytes_are_those_of_the_memory_afterwards(options: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(40, 12), nn.Flatten(), nn.Linear(24, 20), nn.LayerNorm(20), nn.Linear(20, 4)
    )
    memory = nscl.Memory(model, **options)
    planned = memory.estimate()
    memory.remember(torch.randint(0, 40, (200, 2)).split(20))
    found, total = memory.nbytes, planned.total
    if options.get("offload") is None:
        assert total.covariance == found["covariances"]
        assert total.gradient == found["gradients"]
        kept = sum(found.values()) - found["projections"]
        assert planned.nbytes == kept + total.projection
    kept_copies = found["reference"] + found["rest"] + found["anchors"]
    assert total.reference == kept_copies
    # The noise floor and the data decide how many directions are held: at most these. The rest and
    # the gains of proximal rules, one number per direction, are left out.
    small = 4 * 2 * (40 + 25 + 21 + 12 + 20 + 4 + 4)
    assert found["projections"] <= total.projection + small
    if isinstance(memory.rule, nscl.Penalty):
        assert found["projections"] > 0.8 * total.projection


def test_the_meta_device_is_enough_to_plan_with() -> None:
    with torch.device("meta"):
        model = network()
    memory = nscl.Memory(model, rank=16)
    here = nscl.Memory(network(), rank=16)
    speedless = ("name", "inputs", "outputs", "sketched", "covariance", "gradient", "projection")
    for one, other in zip(memory.estimate().layers, here.estimate(model).layers, strict=True):
        assert [getattr(one, n) for n in speedless] == [getattr(other, n) for n in speedless]
    assert [layer.sketched for layer in memory.estimate().layers] == ["", "", "both", "inputs"]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for action in (
        lambda: memory.protect(optimizer),
        lambda: memory.remember([torch.zeros(2)]),
        lambda: memory.load_state_dict(here.state_dict()),
    ):
        with pytest.raises(UnsupportedError, match=r"'0.weight' is on the meta device and has no"):
            action()


def test_seconds_follow_from_the_measured_speed() -> None:
    model = nn.Linear(1000, 100, bias=False)
    full = estimate(take_inventory(model), nscl.Memory(model), SPEED).layers[0]
    assert full.decomposition == pytest.approx(1e-9 * (1000**3 + 100**3))
    assert full.treatment == pytest.approx(1e-11 * 2 * 100 * 1000 * (1000 + 100))
    sketched = estimate(take_inventory(model), nscl.Memory(model, rank=10), SPEED).layers[0]
    assert sketched.decomposition < 0.01 * full.decomposition
    assert sketched.treatment == pytest.approx(1e-11 * 2 * 100 * 1000 * (10 + 10))


def test_what_other_options_would_save_is_shown() -> None:
    model = nn.Sequential(nn.Linear(600, 300), nn.ReLU(), nn.Linear(300, 10))
    plan = estimate(take_inventory(model), nscl.Memory(model), SPEED)
    options = {other.option: other for other in plan.alternatives}
    assert list(options) == ["rank=256", "rank=512", "offload='disk'"]
    assert options["rank=256"].nbytes < options["rank=512"].nbytes
    assert plan.nbytes - options["offload='disk'"].nbytes == (
        plan.total.covariance + plan.total.gradient
    )
    chosen = estimate(take_inventory(model), nscl.Memory(model, rank=256), SPEED)
    assert chosen.nbytes == options["rank=256"].nbytes
    assert [other.option for other in chosen.alternatives] == ["offload='disk'"]
    paper = nscl.Memory.adam_nscl(model)
    assert estimate(take_inventory(model), paper, SPEED).total.gradient == 0


def test_it_is_data_first_and_readable_when_printed() -> None:
    model = nn.Sequential(nn.Linear(600, 300), nn.ReLU(), nn.Linear(300, 10))
    plan = estimate(take_inventory(model), nscl.Memory(model, rank=256), SPEED)
    assert json.loads(json.dumps(plan.to_dict()))["total"]["kind"] == "2 layers"
    lines = str(plan).splitlines()
    assert lines[2].split()[:5] == ["0", "Linear", "both", "601", "300"]
    assert "of RAM between steps" in str(plan)
    assert "with offload='disk': " in lines[-1]
