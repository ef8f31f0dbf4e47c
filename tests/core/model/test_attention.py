"""Attention written out by hand: its four matrices see exactly those rows."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl
from tests.core.memories import covariance, hooks, move, second_moment

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

SIZE, HEADS = 6, 2


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


class Wrapped(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.attention(*args, **kwargs)


def projections(module: nn.MultiheadAttention) -> list[tuple[Tensor, Tensor | None]]:
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return list(zip(weights, biases, strict=True))


def attended(module: nn.MultiheadAttention, inputs: list[Tensor], mask: Tensor) -> Tensor:
    """Softmax attention for inputs ``[batch, length, features]``, one head at a time."""
    q, k, v = (
        F.linear(x, *p).unflatten(-1, (HEADS, -1)).movedim(2, 0)
        for x, p in zip(inputs, projections(module), strict=True)
    )
    heads = []
    for head in range(HEADS):
        scores = q[head] @ k[head].mT / math.sqrt(SIZE // HEADS)
        heads.append(torch.softmax(scores + mask, -1) @ v[head])
    return torch.cat(heads, -1)


def rows(values: Tensor, *, bias: bool) -> Tensor:
    flat = values.detach().reshape(1, -1, values.shape[-1])
    return torch.cat([flat, torch.ones_like(flat[..., :1])], -1) if bias else flat


def forbidden(*shape: int) -> Tensor:
    mask = torch.rand(*shape) < 0.3
    mask[..., 0] = False
    return mask


CASES: dict[str, dict[str, Any]] = {
    "self": {"self": True},
    "cross": {},
    "cross, batch first": {"batch_first": True},
    "separate projections": {"kdim": 4, "vdim": 5, "batch_first": True},
    "no bias": {"bias": False},
    "separate without bias": {"kdim": 4, "vdim": 5, "bias": False},
    "attention mask": {"mask": True},
    "padding mask": {"padding": True, "batch_first": True},
    "all masks": {"mask": True, "padding": True, "self": True},
    "unbatched": {"unbatched": True},
    "with weights": {"need_weights": True, "batch_first": True},
    "by name": {"by_name": True},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_its_four_matrices_see_what_attention_is(case: dict[str, Any]) -> None:
    case = dict(case)
    options = {key: case.pop(key) for key in ("bias", "kdim", "vdim", "batch_first") if key in case}
    module = nn.MultiheadAttention(SIZE, HEADS, dropout=0.5, **options).double()
    memory, seen = nscl.Memory.adam_nscl(Wrapped(module)), []
    for batch in (2, 1):
        count = 1 if case.get("unbatched") else batch
        q = normal(count, 4, SIZE)
        k, v = normal(count, 5, module.kdim), normal(count, 5, module.vdim)
        if case.get("self"):
            k = v = q
        length, mask, kwargs = k.shape[1], torch.zeros(count, 4, k.shape[1]).double(), {}
        if case.get("mask"):
            kwargs["attn_mask"] = forbidden(4, length)
            mask.masked_fill_(kwargs["attn_mask"], -math.inf)
        if case.get("padding"):
            kwargs["key_padding_mask"] = forbidden(count, length)
            mask.masked_fill_(kwargs["key_padding_mask"][:, None], -math.inf)
        seen.append([q, k, v, attended(module, [q, k, v], mask)])
        inputs = [x[0] for x in (q, k, v)] if case.get("unbatched") else [q, k, v]
        if not (module.batch_first or case.get("unbatched")):
            inputs = [x.transpose(0, 1) for x in inputs]
        kwargs["need_weights"] = case.get("need_weights", False)
        if case.get("by_name"):
            kwargs |= dict(zip(("query", "key", "value"), inputs, strict=True))
            inputs = []
        memory.remember([(inputs, kwargs)], forward=lambda m, batch: m(*batch[0], **batch[1]))
    bias = module.in_proj_bias is not None
    for i, label in enumerate(("query", "key", "value", "output")):
        found = covariance(memory, f"attention.{label}")
        expected = second_moment(torch.cat([rows(s[i], bias=bias) for s in seen], 1))
        assert (found - expected).abs().max() < 1e-12, label


def test_forgetting_of_each_matrix_is_that_of_its_projection() -> None:
    module = nn.MultiheadAttention(SIZE, HEADS, batch_first=True).double()
    memory, q, k = nscl.Memory.adam_nscl(Wrapped(module)), normal(2, 3, SIZE), normal(2, 4, SIZE)
    memory.remember([(q, k)], forward=lambda m, batch: m(batch[0], batch[1], batch[1]))
    values = attended(module, [q, k, k], torch.zeros(()))
    before = [F.linear(x, *p).detach() for x, p in zip((q, k, k), projections(module), strict=True)]
    before.append(module.out_proj(values).detach())
    move(module)
    now = [F.linear(x, *p).detach() for x, p in zip((q, k, k), projections(module), strict=True)]
    now.append(module.out_proj(values).detach())
    for layer, old, new in zip(memory.forgetting().layers, before, now, strict=True):
        drift = float((new - old).square().sum(-1).mean())
        assert layer.drift == pytest.approx(drift, rel=1e-11), layer.name
        assert layer.relative == pytest.approx(
            drift / float(old.square().sum(-1).mean()), rel=1e-11
        )


def test_the_module_is_left_as_it_was() -> None:
    model = Wrapped(nn.MultiheadAttention(SIZE, HEADS))
    before, weight = hooks(model), model.attention.out_proj.weight
    nscl.Memory.adam_nscl(model).remember(
        [normal(2, 1, SIZE).float()], forward=lambda m, x: m(x, x, x)
    )
    assert hooks(model) == before
    assert model.attention.out_proj.weight is weight
    assert list(model.attention._modules) == ["out_proj"]


def test_learned_keys_beside_the_inputs_are_held_number_by_number() -> None:
    model = Wrapped(nn.MultiheadAttention(SIZE, HEADS, add_bias_kv=True))
    memory = nscl.Memory.adam_nscl(model)
    report = memory.remember([torch.randn(2, 1, SIZE)], forward=lambda m, x: m(x, x, x))
    held = [layer.name for layer in report.layers if layer.protected_by == "ewc"]
    assert held == ["attention.bias_k", "attention.bias_v"]


def test_a_parametrized_output_projection_leaves_the_rest_protected() -> None:
    model = Wrapped(nn.MultiheadAttention(SIZE, HEADS))
    nn.utils.parametrizations.weight_norm(model.attention.out_proj)
    memory = nscl.Memory.adam_nscl(model)
    report = memory.remember([torch.randn(2, 1, SIZE)], forward=lambda m, x: m(x, x, x))
    held = [layer.name for layer in report.layers if layer.protected_by == "null space"]
    assert held == ["attention.query", "attention.key", "attention.value"]
    assert any("no null space: attention.out_proj:" in note for note in report.notes)


@pytest.mark.parametrize(
    ("norm_first", "norms", "padded"),
    [
        *((first, "train", padded) for first in (False, True) for padded in (False, True)),
        (False, "ewc", False),  # "train" needs no gradients, and then torch would fuse
    ],
)
def test_a_transformer_layer_is_seen_where_torch_would_fuse_it(
    norm_first: bool, norms: Any, padded: bool
) -> None:
    layer = nn.TransformerEncoderLayer(
        SIZE, HEADS, 8, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    assert torch.backends.mha.get_fastpath_enabled()
    memory, x = nscl.Memory(layer, rule=nscl.Ratio(), norms=norms), normal(3, 4, SIZE)
    mask = forbidden(3, 4) if padded else None
    memory.remember([x], forward=lambda model, x: model(x, src_key_padding_mask=mask))
    assert torch.backends.mha.get_fastpath_enabled()
    layer.eval()
    inputs = layer.norm1(x) if norm_first else x
    attention = layer.self_attn(inputs, inputs, inputs, key_padding_mask=mask)[0]
    middle = x + attention if norm_first else layer.norm1(x + attention)
    middle = layer.norm2(middle) if norm_first else middle
    expected = {
        "self_attn.query": inputs,
        "linear1": middle,
        "linear2": F.relu(layer.linear1(middle)),
    }
    for name, values in expected.items():
        truth = second_moment(rows(values, bias=True))
        assert (covariance(memory, name) - truth).abs().max() < 1e-12, name


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.filterwarnings("ignore:.*nested tensor.*")
def test_a_transformer_encoder_too(padded: bool) -> None:
    layer = nn.TransformerEncoderLayer(SIZE, HEADS, 8, batch_first=True, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2)
    memory, x = nscl.Memory(encoder, rule=nscl.Ratio(), norms="train"), normal(3, 4, SIZE)
    mask = torch.tensor([[False] * 4, [False] * 3 + [True], [False] * 2 + [True] * 2])
    kwargs = {"src_key_padding_mask": mask} if padded else {}
    report = memory.remember([x], forward=lambda model, x: model(x, **kwargs))
    held = [line for line in report.layers if line.protected_by == "null space"]
    assert len(held) == 2 * 6
    first = encoder.layers[0].eval()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        deeper = first(x, **kwargs).detach()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    found = covariance(memory, "layers.1.self_attn.query")
    assert (found - second_moment(rows(deeper, bias=True))).abs().max() < 1e-12
