"""The wrapper of an encoder, with one of plain layers; real ones: tests/integrations."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nscl import pretrained
from nscl.models import ModelError
from nscl.models.networks.pretrained_encoder import PretrainedEncoder, read_encoder


class Encoder(nn.Module):
    """As much of a transformers model as is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=4, max_position_embeddings=10)
        self.embedding = nn.Embedding(20, 4)
        self.dropout = nn.Dropout(0.5)
        self.pooler = nn.Linear(4, 4)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        return (self.dropout(self.embedding(input_ids)),)


def test_features_are_the_mean_over_real_tokens_and_nothing_drops_out() -> None:
    network = PretrainedEncoder(Encoder()).train()
    ids, mask = torch.tensor([[3, 4, 9], [5, 9, 9]]), torch.tensor([[1, 1, 0], [1, 0, 0]])
    found = network({"input_ids": ids, "attention_mask": mask})
    table = network.encoder.embedding.weight
    torch.testing.assert_close(found, torch.stack([table[[3, 4]].mean(0), table[5]]))
    assert network.training
    assert not any(part.training for part in network.encoder.modules())
    assert network.out_features == 4


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is read instead of a folder, and what was asked for."""
    asked: list[tuple[str, str]] = []

    def reading(name: str, kind: str) -> Any:
        asked.append((name, kind))
        return Encoder()

    monkeypatch.setattr(pretrained, "read", reading)
    return asked


def test_what_is_never_asked_is_taken_out(read: list[tuple[str, str]]) -> None:
    network = read_encoder("hf:somewhere", (10, 20))
    assert read == [("hf:somewhere", "AutoModel")]
    assert network.encoder.pooler is None
    assert all(not name.startswith("encoder.pooler") for name, _ in network.named_parameters())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((10, 21), r"knows 20 tokens, the tokenizer has 21: use its own \(--data\.tokenizer hf:x"),
        ((11, 20), r"takes up to 10 tokens: --data\.length 11 is too long"),
    ],
)
def test_texts_that_do_not_fit_are_refused(
    shape: tuple[int, int], message: str, read: list[tuple[str, str]]
) -> None:
    with pytest.raises(ModelError, match=message):
        read_encoder("hf:x", shape)
