"""Texts of several lengths, padded as a test likes, and a small model that ignores the padding."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl

WORDS, WIDTH = 11, 8


def padded(texts: Sequence[Sequence[int]], positions: int, *, left: bool = False) -> dict[str, Any]:
    """Token ids and their mask; what stands at padded positions is arbitrary."""
    ids = torch.randint(0, WORDS, (len(texts), positions))
    mask = torch.zeros(len(texts), positions, dtype=torch.long)
    for row, text in enumerate(texts):
        where = slice(positions - len(text), None) if left else slice(0, len(text))
        ids[row, where] = torch.tensor(text)
        mask[row, where] = 1
    return {"input_ids": ids, "attention_mask": mask}


class Reader(nn.Module):
    """Embeddings, an attention that respects the mask, a norm layer, and logits per position."""

    def __init__(self, *, absolute: bool = True, longest: int = 80) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(longest, WIDTH) if absolute else None
        self.body = nn.Linear(WIDTH, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 5)
        self.double()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None
    ) -> dict[str, Tensor]:
        x = self.words(input_ids)
        if self.places is not None:
            x = x + self.places(torch.arange(x.shape[1]))
        x = self.body(x).tanh()
        ignored = attention_mask == 0
        x = self.norm(x + self.attention(x, x, x, key_padding_mask=ignored, need_weights=False)[0])
        output = {"logits": self.head(x)}
        if labels is not None:
            output["loss"] = F.cross_entropy(output["logits"].flatten(0, -2), labels.flatten())
        return output


def memory_of(model: nn.Module, *batches: Any, norms: Any = "ewc", **options: Any) -> nscl.Memory:
    """A memory of these batches."""
    memory = nscl.Memory(model, norms=norms)
    memory.remember(batches, **options)
    return memory


def assert_same(one: nscl.Memory, other: nscl.Memory) -> None:
    """Equal row counts everywhere, and sums that differ by rounding at most."""
    a, b = one.state_dict(), other.state_dict()
    assert a["tensors"].keys() == b["tensors"].keys()
    for name, block in a["metadata"]["blocks"].items():
        assert block["seen"]["rows"] == b["metadata"]["blocks"][name]["seen"]["rows"], name
    assert a["metadata"]["gradients"] == b["metadata"]["gradients"]
    for name, tensor in a["tensors"].items():
        scale = tensor.abs().max().clamp_min(1e-9)  # a gradient may vanish
        assert ((tensor - b["tensors"][name]).abs().max() / scale) < 1e-12, name
