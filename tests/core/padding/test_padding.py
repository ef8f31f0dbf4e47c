"""A memory does not depend on padding: how much there is, where, and what stands there."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import nscl
from nscl.core.covariance.packed import unpack
from tests.core.memories import rows_seen
from tests.core.padding.texts import WIDTH, WORDS, Reader, assert_same, memory_of, padded

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")

TEXTS = st.lists(
    st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=6), min_size=1, max_size=7
)
SIX = [[3, 1, 4], [1], [5, 9, 2, 6], [5, 3], [5, 8, 9, 7, 9], [3]]


@settings(max_examples=15, deadline=None)
@given(texts=TEXTS, more=st.integers(0, 5), left=st.booleans())
def test_padding_leaves_no_trace(texts: list[list[int]], more: int, left: bool) -> None:
    torch.manual_seed(0)
    model = Reader(absolute=not left)
    longest = max(map(len, texts))
    short = memory_of(model, padded(texts, longest, left=left))
    assert_same(short, memory_of(model, padded(texts, longest + more, left=left)))
    assert rows_seen(short, "body") == sum(map(len, texts))


def test_64_texts_padded_to_64_positions_are_the_same_memory() -> None:
    torch.manual_seed(0)
    model, texts = (
        Reader(),
        [torch.randint(0, WORDS, (1 + 7 * i % 13,)).tolist() for i in range(64)],
    )
    assert_same(memory_of(model, padded(texts, 13)), memory_of(model, padded(texts, 64)))


def test_padded_texts_are_the_texts_one_by_one() -> None:
    torch.manual_seed(0)
    model = Reader(absolute=False)
    singly = memory_of(model, *(padded([text], len(text)) for text in SIX), norms="freeze")
    at_once = memory_of(model, padded(SIX, 9), norms="freeze")
    one, other = (m.state_dict()["tensors"] for m in (singly, at_once))
    for name in (n for n in one if n.startswith("covariance/")):
        assert torch.allclose(one[name], other[name], rtol=1e-12, atol=1e-12), name


def test_without_the_mask_padding_is_remembered() -> None:
    torch.manual_seed(0)
    model, batch = Reader(), padded(SIX, 9)
    assert rows_seen(memory_of(model, batch), "head") == 16
    assert rows_seen(memory_of(model, batch, mask=lambda batch: None), "head") == 54


@pytest.mark.parametrize("norms", ["ewc", "freeze"])
@pytest.mark.parametrize("options", [{"likelihood": "gaussian"}, {"temperature": 1.0}])
def test_every_way_to_weigh_outputs_leaves_padding_out(norms: str, options: Any) -> None:
    torch.manual_seed(0)
    model = Reader()
    short, wide = (
        memory_of(model, padded(SIX[:3], n), padded(SIX[3:], n + 1), norms=norms, **options)
        for n in (5, 8)
    )
    assert_same(short, wide)
    assert short.state_dict()["metadata"]["gradients"]["head"]["rows"] == 6  # samples


def test_anchors_average_over_real_positions_alone() -> None:
    torch.manual_seed(0)
    model, batch = Reader(), padded(SIX, 7)
    memory = memory_of_inputs(model, batch)
    model.zero_grad()
    logits = model(**batch)["logits"][batch["attention_mask"].bool()]
    F.cross_entropy(logits, logits.argmax(-1)).backward()
    anchor = memory.state_dict()["tensors"]["fisher/norm.weight"]
    assert model.norm.weight.grad is not None
    assert torch.allclose(anchor, 6 * model.norm.weight.grad.square(), rtol=1e-12)


def memory_of_inputs(model: nn.Module, *batches: Any, **options: Any) -> nscl.Memory:
    memory = nscl.Memory(model, rule=nscl.Energy(0.01), factors="input", norms="ewc")
    memory.remember(batches, **options)
    return memory


class Hidden(nn.Module):
    """The hidden states of a reader, with positions before samples inside."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for norm in (m for m in self.layers.modules() if isinstance(m, nn.LayerNorm)):
            nn.init.normal_(norm.weight)  # with ones the squared norm of an output cannot move
        self.double()

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        x: Tensor = self.layers(self.words(ids).transpose(0, 1), src_key_padding_mask=padding)
        return x.transpose(0, 1)


def hidden(texts: list[list[int]], positions: int) -> tuple[Tensor, Tensor]:
    batch = padded(texts, positions)
    return batch["input_ids"], batch["attention_mask"] == 0


def test_positions_may_come_first_and_the_mask_from_a_function() -> None:
    torch.manual_seed(0)
    model = Hidden()
    options: Any = {
        "forward": lambda model, batch: model(*batch),
        "mask": lambda batch: ~batch[1],
        "likelihood": "gaussian",
    }
    short, wide = (memory_of(model, hidden(SIX, n), **options) for n in (5, 8))
    assert_same(short, wide)
    assert rows_seen(short, "layers.layers.1.linear1") == 16
    anchored = [memory_of_inputs(model, hidden(SIX, n), **options) for n in (5, 8)]
    assert_same(*anchored)
    with pytest.raises(nscl.NsclError, match=r"as many positions as samples \(6\) and 'layers"):
        memory_of(model, hidden(SIX, 6), **options)


class Careless(nn.Module):
    """Adds up all positions, padded ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, dtype=torch.float64)
        self.body = nn.Linear(WIDTH, 3, dtype=torch.float64)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return torch.stack([self.body(self.words(input_ids)).sin().sum((1, 2)), input_ids[:, 0]], 1)


def test_gradients_at_padded_positions_are_in_no_second_moment() -> None:
    torch.manual_seed(0)
    model, batch = Careless(), padded(SIX, 7)
    memory = memory_of(model, batch, loss=lambda output, batch: output[:, 0].mean())
    real = batch["attention_mask"].bool()
    rows = model.body(model.words(batch["input_ids"]))[real].cos()
    found = unpack(memory.state_dict()["tensors"]["gradient/body"])[0]
    assert torch.allclose(found, rows.T @ rows, rtol=1e-12)


class Listener(nn.Module):
    """Convolutions over the positions, the second of them with a stride, then a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Conv1d(2, 3, 3, padding=1)
        self.far = nn.Conv1d(3, 4, 4, stride=2)
        self.head = nn.Linear(4, 2)
        self.double()

    def forward(self, sound: Tensor, attention_mask: Tensor) -> Tensor:
        real = attention_mask[:, None]
        x = self.far(self.near(sound * real).relu() * real).relu()
        lengths = (attention_mask.sum(1) - 4).div(2, rounding_mode="floor") + 1
        frames = torch.arange(x.shape[2]) < lengths[:, None]
        x = self.head(x.transpose(1, 2)) * frames[..., None]
        return x.sum(1)


def sounds(lengths: list[int], positions: int) -> dict[str, Tensor]:
    torch.manual_seed(1)
    whole = torch.randn(len(lengths), 2, 20, dtype=torch.float64)[..., :positions]
    return {
        "sound": whole,
        "attention_mask": torch.arange(positions) < torch.tensor(lengths)[:, None],
    }


def test_convolutions_over_positions_pass_the_mask_on() -> None:
    torch.manual_seed(0)
    model, lengths = Listener(), [7, 4, 9, 3]  # the last gives no frame at all
    short, wide = (memory_of(model, sounds(lengths, n)) for n in (9, 15))
    assert_same(short, wide)
    counts = {name: rows_seen(short, name) for name in ("near", "far", "head")}
    assert counts == {"near": 23, "far": 2 + 1 + 3, "head": 2 + 1 + 3}


def test_whole_maps_cannot_be_averaged_without_their_padding() -> None:
    with pytest.raises(nscl.NsclError, match="layer 'near' and cannot leave padded"):
        memory_of(Listener(), sounds([7, 4], 9), batch_mean=True)


class Translator(nn.Module):
    """An encoder, and a decoder that looks at what the encoder returned."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH))
        self.words = nn.Embedding(WORDS, WIDTH)
        self.cross = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, 3)
        self.double()

    def forward(self, ids: Tensor, attention_mask: Tensor, out: Tensor,
                decoder_attention_mask: Tensor) -> dict[str, Tensor]:  # fmt: skip
        read, x = self.encoder(ids), self.words(out)
        x = x + self.cross(x, read, read, key_padding_mask=attention_mask == 0)[0]
        return {"logits": self.head(x)}


def translated(first: int, second: int) -> dict[str, Tensor]:
    a, b = padded(SIX, first), padded(SIX[::-1], second)
    return {
        "ids": a["input_ids"],
        "attention_mask": a["attention_mask"],
        "out": b["input_ids"],
        "decoder_attention_mask": b["attention_mask"],
    }


def test_two_sequences_have_a_mask_each_even_when_equally_wide() -> None:
    torch.manual_seed(0)
    model = Translator()
    short, wide = (memory_of(model, translated(*sizes)) for sizes in ((5, 6), (8, 8)))
    assert_same(short, wide)
    assert rows_seen(wide, "cross.key") == sum(map(len, SIX))
    lopsided = translated(8, 8)
    lopsided["decoder_attention_mask"] = torch.ones(6, 8)
    memory = memory_of(model, lopsided)
    assert [rows_seen(memory, f"cross.{n}") for n in ("query", "key", "output")] == [48, 16, 48]


def test_a_full_mask_changes_nothing() -> None:
    torch.manual_seed(0)
    model, batch = Reader(), padded([[1, 2, 3], [4, 5, 6]], 3)
    assert_same(memory_of(model, batch), memory_of(model, batch, mask=lambda batch: None))


def test_averages_over_a_batch_are_over_its_real_rows() -> None:
    torch.manual_seed(0)
    model = Reader()
    assert_same(*(memory_of(model, padded(SIX, n), batch_mean=True) for n in (5, 8)))
