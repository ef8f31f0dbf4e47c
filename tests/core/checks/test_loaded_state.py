"""A memory that was damaged or edited is refused in one line, and nothing is taken over."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.covariance.packed import pack, packed_diagonal, unpack
from nscl.core.projection.rules import Rule
from nscl.errors import MemoryFileError
from tests.core.memories import remembered, same

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

Tensors = dict[str, Tensor]
Change = Callable[[dict[str, Any], Tensors], Any]
OLD = torch.tensor([[1, 2], [3, 1], [2, 2], [1, 3]])
NEW = OLD + 2
WAY_OUT = "load another copy"


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
    )


def memory_of(model: nn.Module, **options: Any) -> nscl.Memory:
    memory = nscl.Memory(model, **options)
    memory.remember([OLD], likelihood="categorical")
    return memory


def saved(**options: Any) -> dict[str, Any]:
    return copy.deepcopy(memory_of(network(), **options).state_dict())


def put(name: str, value: float, at: int = 0) -> Change:
    def change(metadata: dict[str, Any], tensors: Tensors) -> None:
        tensors[name].view(-1)[at] = value

    return change


def reshaped(name: str) -> Change:
    """One number fewer in the last dimension."""
    return lambda metadata, tensors: tensors.update({name: tensors[name][..., :-1].clone()})


def dense(name: str, function: Callable[[Tensor], Tensor]) -> Change:
    """Change a packed matrix as a whole."""

    def change(metadata: dict[str, Any], tensors: Tensors) -> None:
        tensors[name] = pack(function(unpack(tensors[name])))

    return change


def with_negative_eigenvalue(matrix: Tensor) -> Tensor:
    """Indefinite, with a diagonal that shows nothing of it."""
    values, vectors = torch.linalg.eigh(matrix)
    values[..., 0] = -0.05 * values[..., -1]
    found = vectors @ torch.diag_embed(values) @ vectors.mT
    assert (found.diagonal(dim1=-2, dim2=-1) > 0).all()
    return (found + found.mT) / 2


def seen(name: str, key: str, value: Any) -> Change:
    return lambda metadata, tensors: metadata["blocks"][name]["seen"].update({key: value})


COVARIANCE, GRADIENT = "covariance/2", "gradient/2"
WRONG: dict[str, tuple[Change, str]] = {
    "nan covariance": (put(COVARIANCE, float("nan")), "covariance of layer '2'.* not finite"),
    "inf covariance": (put(COVARIANCE, float("inf"), 5), "covariance of layer '2'.* not finite"),
    "nan counts": (put("covariance/0", float("nan")), "covariance of layer '0'.* not finite"),
    "negative counts": (put("covariance/0", -1.0), "covariance of layer '0'.* negative"),
    "nan gradient": (put(GRADIENT, float("nan")), "gradient of layer '2'.* not finite"),
    "shape": (reshaped(COVARIANCE), r"covariance of layer '2' has shape \(1, 9, 4\), not .*9, 5"),
    "counts' shape": (reshaped("covariance/0"), r"covariance of layer '0' has shape \(8,\), not"),
    "gradient's shape": (reshaped(GRADIENT), r"gradient of layer '2' has shape .*, not "),
    "unpacked": (
        lambda m, t: t.update({COVARIANCE: unpack(t[COVARIANCE])}),
        r"covariance of layer '2' has shape \(1, 9, 9\), not",
    ),
    "negated": (dense(COVARIANCE, torch.neg), "covariance of layer '2'.* negative"),
    "negated gradient": (dense(GRADIENT, torch.neg), "gradient of layer '2'.* negative"),
    "indefinite": (dense(COVARIANCE, with_negative_eigenvalue), "layer '2'.* negative eigenvalue"),
    "indefinite gradient": (
        dense(GRADIENT, with_negative_eigenvalue),
        "layer '2'.* negative eigenvalue",
    ),
    "no rows": (seen("2", "rows", 0), "covariance of layer '2'.* rows"),
    "rows in words": (seen("2", "rows", "many"), "covariance of layer '2'.* rows"),
    "negative noise": (seen("2", "noise", -1.0), "covariance of layer '2'.* noise"),
    "no weight": (lambda m, t: t.pop("reference/2.weight"), "no weights '2.weight' of layer '2'"),
    "no bias": (lambda m, t: t.pop("reference/2.bias"), "no weights '2.bias' of layer '2'"),
    "no norm": (lambda m, t: t.pop("reference/3.weight"), "no weights '3.weight' of layer '3'"),
    "nan weight": (put("reference/2.weight", float("nan")), "weights '2.weight' of layer '2'"),
    "nan fisher": (put("fisher/3.weight", float("nan")), "fisher of '3.weight'.* not finite"),
    "negative fisher": (put("fisher/3.bias", -1.0), "fisher of '3.bias'.* negative"),
    "fisher's shape": (reshaped("fisher/3.weight"), r"fisher of '3.weight' has shape \(5,\), not"),
    "nan pull": (put("pull/3.weight", float("inf")), "pull of '3.weight'.* not finite"),
    "pull's shape": (reshaped("pull/3.weight"), r"pull of '3.weight' has shape \(5,\), not"),
    "nan variance": (
        put("statistics/3/running_var", float("nan")),
        "running_var of layer '3'.* not finite",
    ),
    "negative variance": (
        put("statistics/3/running_var", -0.5),
        "running_var of layer '3'.* negative",
    ),
    "nan mean": (
        put("statistics/3/running_mean", float("nan")),
        "running_mean of layer '3'.* not finite",
    ),
    "no table": (lambda m, t: m.update(blocks=[]), "incomplete or was edited"),
    "no row range": (lambda m, t: m["blocks"]["2"].update(rows=[]), "incomplete or was edited"),
    "no sketch": (seen("2", "sketch", {"rank": 3, "lost": "x", "bound": []}), "was edited"),
    "no tensor": (lambda m, t: t.update({COVARIANCE: [1.0]}), "incomplete"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_damaged_is_named_and_the_memory_stays(change: Change, message: str) -> None:
    state, memory = saved(), memory_of(network())
    memory.remember([NEW], likelihood="categorical")
    known, projections = remembered(memory), memory._state.projections
    change(state["metadata"], state["tensors"])
    with pytest.raises(MemoryFileError, match=message) as caught:
        memory.load_state_dict(state)
    assert "\n" not in str(caught.value)
    assert WAY_OUT in str(caught.value)
    assert same(remembered(memory), known)
    assert memory._state.projections is projections


@pytest.mark.parametrize("rule", [nscl.Ratio(10.0), nscl.Ratio(10.0, literal=True), nscl.Penalty()])
@pytest.mark.parametrize("function", [torch.neg, with_negative_eigenvalue])
def test_no_rule_takes_a_matrix_that_is_no_covariance(rule: Rule, function: Any) -> None:
    """The authors' numerics are an SVD, which does not see the sign of an eigenvalue."""
    state = saved(rule=rule)
    dense(COVARIANCE, function)(state["metadata"], state["tensors"])
    memory = nscl.Memory(network(), rule=rule)
    with pytest.raises(MemoryFileError, match=r"layer '2'.* negative"):
        memory.load_state_dict(state)
    assert memory.tasks == 0


@pytest.mark.parametrize("rule", [nscl.Ratio(10.0), nscl.Ratio(10.0, literal=True), nscl.Penalty()])
def test_rounding_is_no_damage(rule: Rule) -> None:
    """Sums of deficient rank have negative eigenvalues in the last places."""
    torch.manual_seed(0)
    model = nn.Linear(60, 4)
    memory = nscl.Memory(model, rule=rule)
    memory.remember([1e3 * torch.randn(40, 3) @ torch.randn(3, 60)], likelihood="gaussian")
    found = unpack(memory.state_dict()["tensors"]["covariance/model"])
    assert torch.linalg.eigvalsh(found).min() < 0
    other = nscl.Memory(model, rule=rule)
    other.load_state_dict(memory.state_dict())
    assert same(remembered(other), remembered(memory))


def test_files_are_checked_too_and_a_damaged_layer_can_be_left_out(tmp_path: Path) -> None:
    from tests.core.test_serialization import rewritten

    memory_of(network()).save(tmp_path / "m")
    rewritten(tmp_path / "m", put(COVARIANCE, float("nan")))
    with pytest.raises(MemoryFileError, match=r"exclude=\['2'\]"):
        nscl.Memory.load(tmp_path / "m", network())
    loaded = nscl.Memory.load(tmp_path / "m", network(), exclude=["2"])
    assert set(loaded._state.blocks) == {"0", "4"}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_is_checked(version: int) -> None:
    state, memory = saved(), nscl.Memory(network())
    state["metadata"]["version"] = version
    memory.load_state_dict(state)
    put(COVARIANCE, float("nan"))(state["metadata"], state["tensors"])
    with pytest.raises(MemoryFileError, match="not finite"):
        memory.load_state_dict(state)


SKETCH: dict[str, tuple[Change, str]] = {
    "nan rows": (put(COVARIANCE, float("nan")), "covariance of layer '2'.* not finite"),
    "width": (reshaped(COVARIANCE), r"covariance of layer '2' has shape \(1, 3, 8\), not"),
    "one dimension": (
        lambda m, t: t.update({COVARIANCE: t[COVARIANCE].view(-1)}),
        "covariance of layer '2' has shape",
    ),
    "too many rows": (
        lambda m, t: t.update({COVARIANCE: t[COVARIANCE].repeat(1, 2, 1)}),
        "covariance of layer '2' has shape",
    ),
    "lost": (
        lambda m, t: m["blocks"]["2"]["seen"]["sketch"].update(lost=[-1.0]),
        "covariance of layer '2'.* lost",
    ),
    "bound": (
        lambda m, t: m["blocks"]["2"]["seen"]["sketch"].update(bound=[float("nan")]),
        "covariance of layer '2'.* bound",
    ),
    "two groups": (
        lambda m, t: m["blocks"]["2"]["seen"]["sketch"].update(lost=[0.0, 0.0]),
        "covariance of layer '2'.* lost",
    ),
    "rank": (
        lambda m, t: m["blocks"]["2"]["seen"]["sketch"].update(rank=0),
        "covariance of layer '2'.* rank",
    ),
}


@pytest.mark.parametrize(("change", "message"), SKETCH.values(), ids=SKETCH.keys())
def test_sketches_are_checked(change: Change, message: str) -> None:
    state, memory = saved(rank=3), nscl.Memory(network(), rank=3)
    memory.load_state_dict(copy.deepcopy(state))
    known = remembered(memory)
    change(state["metadata"], state["tensors"])
    with pytest.raises(MemoryFileError, match=message):
        memory.load_state_dict(state)
    assert same(remembered(memory), known)


def test_grouped_layers_have_a_matrix_per_group() -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.Flatten(), nn.Linear(54, 2))
    memory = nscl.Memory(model)
    memory.remember([torch.randn(8, 4, 5, 5)], likelihood="categorical")
    other = nscl.Memory(model)
    other.load_state_dict(memory.state_dict())
    state = copy.deepcopy(memory.state_dict())
    state["tensors"]["covariance/0"] = state["tensors"]["covariance/0"][:1]
    with pytest.raises(MemoryFileError, match=r"layer '0' has shape \(1, 19, 10\), not \(2, 19"):
        other.load_state_dict(state)


def test_packed_matrices_cannot_be_asymmetric() -> None:
    """Each pair of features has one number, so there is nothing to check."""
    packed = torch.randn(2, 7, 4, dtype=torch.float64)
    matrix = unpack(packed)
    assert torch.equal(matrix, matrix.mT)
    assert torch.equal(unpack(packed), unpack(pack(matrix)))


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_the_diagonal_is_read_without_unpacking(n: int) -> None:
    matrix = torch.randn(2, n, n, dtype=torch.float64)
    matrix = matrix + matrix.mT
    assert torch.equal(packed_diagonal(pack(matrix)), matrix.diagonal(dim1=-2, dim2=-1))


def test_nothing_is_decomposed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    eigh = torch.linalg.eigh

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return eigh(*args, **kwargs)

    state = saved()
    monkeypatch.setattr(torch.linalg, "eigh", counted)
    nscl.Memory(network()).load_state_dict(state)
    matrices = [name for name in state["tensors"] if name.startswith(("covariance/", "gradient/"))]
    assert len(calls) == len(matrices) - 1  # tokens are counted


def test_weights_that_only_recall_needs_are_a_warning() -> None:
    model = network()
    state = saved(norms="train", exclude=["4"])
    assert "rest/4.weight" in state["tensors"]
    reshaped("rest/4.weight")(state["metadata"], state["tensors"])
    memory = nscl.Memory(model, norms="train")
    with pytest.warns(nscl.NsclWarning, match=r"recall\(\) .*4.weight"):
        memory.load_state_dict(state)
    with pytest.raises(nscl.NsclError, match="recall needs the model as it was"):
        memory.recall(OLD)


def test_masks_of_infinity_are_no_damage() -> None:
    """What only recall needs may be anything: attention masks are buffers of minus infinity."""
    model = network()
    model.register_buffer("mask", torch.full((2, 2), -torch.inf))
    memory = memory_of(model)
    other = nscl.Memory(model)
    other.load_state_dict(memory.state_dict())
    assert same(remembered(other), remembered(memory))


def test_projections_of_a_function_of_ones_own_are_checked() -> None:
    from nscl.core.projection.low_rank_projector import Projection
    from nscl.core.projection.projector import analyse_rows

    def project(block: Any, covariance: Any, previous: Any) -> Any:
        spectrum, projection = analyse_rows(
            block, covariance, nscl.Tolerance(1e-3), frobenius=False
        )
        assert isinstance(projection, Projection)
        return projection.to(device=torch.device("cpu"), dtype=torch.float32), spectrum

    options: Any = {"projector": project, "keep_covariances": False}
    state = saved(**options)
    memory = nscl.Memory(network(), **options)
    memory.load_state_dict(copy.deepcopy(state))
    for change, message in (
        (lambda s: s["tensors"].pop("reference/2.bias"), "no weights '2.bias' of layer '2'"),
        (lambda s: s["projections"]["2"]["basis"].fill_(float("nan")), "projection of layer '2'"),
        (lambda s: s["spectra"]["2"]["eigenvalues"].fill_(float("nan")), "spectrum of layer '2'"),
        (lambda s: s["masks"]["0"].fill_(float("inf")), "projection of layer '0'"),
    ):
        broken = copy.deepcopy(state)
        change(broken)
        with pytest.raises(MemoryFileError, match=message):
            memory.load_state_dict(broken)
