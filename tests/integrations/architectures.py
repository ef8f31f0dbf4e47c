"""Architectures of transformers, tiny and from their configuration: nothing is downloaded."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")
import transformers as T

Batch = dict[str, torch.Tensor]

TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 50,
}
CAUSAL = {**TEXT, "num_key_value_heads": 1, "head_dim": 16, "use_cache": False}
VISION: dict[str, Any] = {
    **{name: size for name, size in TEXT.items() if name != "vocab_size"},
    "image_size": 16,
    "patch_size": 8,
}


def words(*, seed: int, name: str = "input_ids") -> Batch:
    """Three short sequences; the last one repeats the first."""
    drawn = torch.randint(3, 50, (2, 5), generator=torch.Generator().manual_seed(seed))
    return {name: drawn[[0, 1, 0]]}


def numbers(name: str, *shape: int, seed: int) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    return {name: torch.randn(*shape, dtype=torch.float64, generator=draw)}


def both(*, seed: int, name: str = "decoder_input_ids") -> Batch:
    return words(seed=seed) | words(seed=seed + 1, name=name)


def picture(*, seed: int, size: int = 16) -> Batch:
    return numbers("pixel_values", 2, 3, size, size, seed=seed)


def sound(*, seed: int) -> Batch:
    return numbers("input_values", 2, 100, seed=seed)


def speech(*, seed: int) -> Batch:
    asked = words(seed=seed, name="decoder_input_ids")
    return numbers("input_features", 3, 8, 20, seed=seed) | asked


def captioned(*, seed: int) -> Batch:
    return words(seed=seed) | numbers("pixel_values", 3, 3, 16, 16, seed=seed)


def gpt2() -> nn.Module:
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    return T.GPT2LMHeadModel(T.GPT2Config(**size, use_cache=False))


def llama(*, tied: bool) -> nn.Module:
    return T.LlamaForCausalLM(T.LlamaConfig(**CAUSAL, tie_word_embeddings=tied))


# Of the experts' implementations only the eager one computes in float64.
EAGER = {"experts_implementation": "eager"}


def mixtral(**implementation: str) -> nn.Module:
    config = T.MixtralConfig(**CAUSAL, num_local_experts=4, **implementation)
    return T.MixtralForCausalLM(config)


def qwen3_moe() -> nn.Module:
    size = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    return T.Qwen3MoeForCausalLM(T.Qwen3MoeConfig(**CAUSAL, **size, **EAGER))


def deepseek_v3() -> nn.Module:
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    groups = {"n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
    ranks = {"kv_lora_rank": 8, "q_lora_rank": 8}
    heads = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
    size = {**experts, **groups, **ranks, **heads, "num_key_value_heads": 2, "use_cache": False}
    return T.DeepseekV3ForCausalLM(T.DeepseekV3Config(**TEXT, **size, **EAGER))


def t5() -> nn.Module:
    size = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2}
    config = T.T5Config(**size, vocab_size=50, decoder_start_token_id=0, use_cache=False)
    return T.T5ForConditionalGeneration(config)


def convnext() -> nn.Module:
    config = T.ConvNextConfig(depths=[1] * 4, hidden_sizes=[8, 12, 16, 20], num_labels=4)
    return T.ConvNextForImageClassification(config)


def wav2vec2() -> nn.Module:
    layers = {"conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3]}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = T.Wav2Vec2Config(
        **TEXT, **layers, **positions, num_feat_extract_layers=2, mask_time_prob=0.0
    )
    return T.Wav2Vec2ForCTC(config)


def distilbert() -> nn.Module:
    size = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48, "vocab_size": 50}
    config = T.DistilBertConfig(**size, max_position_embeddings=16, num_labels=4)
    return T.DistilBertForSequenceClassification(config)


def modernbert() -> nn.Module:
    special = {f"{name}_token_id": i for i, name in enumerate(("pad", "cls", "sep", "bos", "eos"))}
    config = T.ModernBertConfig(**TEXT, **special, num_labels=4)
    return T.ModernBertForSequenceClassification(config)


def whisper() -> nn.Module:
    size = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 48))
    }
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    reach = {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 12}
    config = T.WhisperConfig(vocab_size=50, d_model=32, **size, **special, **reach, use_cache=False)
    return T.WhisperForConditionalGeneration(config)


def clip() -> nn.Module:
    text = {**TEXT, "max_position_embeddings": 16, "eos_token_id": 2}
    return T.CLIPModel(T.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=16))


def mamba() -> nn.Module:
    size = {"vocab_size": 50, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}
    return T.MambaForCausalLM(T.MambaConfig(**size, use_cache=False))


def mamba2() -> nn.Module:
    heads = {"num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 4}
    size = {"vocab_size": 50, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2}
    return T.Mamba2ForCausalLM(T.Mamba2Config(**size, **heads, use_cache=False))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Batch]]] = {
    "gpt2": (gpt2, words),
    "llama": (lambda: llama(tied=False), words),
    "llama tied": (lambda: llama(tied=True), words),
    "mistral": (lambda: T.MistralForCausalLM(T.MistralConfig(**CAUSAL)), words),
    "qwen3": (lambda: T.Qwen3ForCausalLM(T.Qwen3Config(**CAUSAL)), words),
    "gemma3": (lambda: T.Gemma3ForCausalLM(T.Gemma3TextConfig(**CAUSAL)), words),
    "falcon": (lambda: T.FalconForCausalLM(T.FalconConfig(**TEXT, use_cache=False)), words),
    "mixtral": (lambda: mixtral(**EAGER), words),
    "qwen3 moe": (qwen3_moe, words),
    "deepseek v3": (deepseek_v3, words),
    "t5": (t5, both),
    "vit": (lambda: T.ViTForImageClassification(T.ViTConfig(**VISION, num_labels=4)), picture),
    "convnext": (convnext, lambda *, seed: picture(seed=seed, size=32)),
    "dinov2": (lambda: T.Dinov2Model(T.Dinov2Config(**VISION)), picture),
    "wav2vec2": (wav2vec2, sound),
    "distilbert": (distilbert, words),
    "roberta": (
        lambda: T.RobertaForMaskedLM(T.RobertaConfig(**TEXT, max_position_embeddings=16)),
        words,
    ),
    "modernbert": (modernbert, words),
    "whisper": (whisper, speech),
    "clip": (clip, captioned),
    "mamba": (mamba, words),
    "mamba2": (mamba2, words),
}
HIDDEN_STATES = ("dinov2", "clip")  # no logits: their output means numbers
