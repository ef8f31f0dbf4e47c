"""Pretrained text encoders read by transformers, and the mean of their outputs over real tokens.

``minilm`` is all-MiniLM-L6-v2 from a wheel, ``hf:PATH`` any folder that ``AutoModel`` reads. The
encoder stays in eval mode while it learns: a few epochs of fine-tuning learn better without
dropout, and a teacher then answers as its student did.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from torch import Tensor, nn

from nscl import pretrained
from nscl.models.errors import ModelError
from nscl.models.networks.shapes import check_text_shape
from nscl.models.networks.tiny_transformer import mean_of_tokens


class PretrainedEncoder(nn.Module):
    """Token ids and mask ``[N, length]`` to features ``[N, hidden size]``."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        config: Any = encoder.config
        self.encoder = encoder
        self.out_features = int(config.hidden_size)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Leave the encoder in eval mode, whatever the mode of the rest."""
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, texts: Mapping[str, Tensor]) -> Tensor:
        """Map texts to features."""
        mask = texts["attention_mask"]
        output = self.encoder(input_ids=texts["input_ids"], attention_mask=mask)
        return mean_of_tokens(output[0], mask)


def read_encoder(name: str, text_shape: Sequence[int]) -> PretrainedEncoder:
    """Read weights from the folder that ``name`` stands for; check that the tokens are its own."""
    length, vocabulary = check_text_shape(text_shape)
    encoder = pretrained.read(name, "AutoModel")
    _check_fits(name, encoder, length, vocabulary)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # it is not asked, and what is not asked cannot be protected
    return PretrainedEncoder(encoder)


def _check_fits(name: str, encoder: Any, length: int, vocabulary: int) -> None:
    tokens = encoder.get_input_embeddings().num_embeddings
    if vocabulary > tokens:
        raise ModelError(
            f"{name} knows {tokens:,} tokens, the tokenizer has {vocabulary:,}: "
            f"use its own (--data.tokenizer {name})"
        )
    most = getattr(encoder.config, "max_position_embeddings", None)
    if most is not None and length > most:
        raise ModelError(f"{name} takes up to {most} tokens: --data.length {length} is too long")
