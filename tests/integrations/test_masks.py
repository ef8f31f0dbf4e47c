"""Masks of real transformers: how far texts are padded, and on which side, leaves no trace."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from torch import nn
from transformers import (
    BatchEncoding,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    Wav2Vec2Config,
    Wav2Vec2Model,
)

import nscl
from tests.core.memories import rows_seen
from tests.core.padding.texts import WORDS, assert_same, padded
from tests.integrations.models import tiny_llama, tokens

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")

LENGTHS = [1 + 7 * i % 13 for i in range(64)]


def texts(seed: int) -> list[list[int]]:
    torch.manual_seed(seed)
    order = LENGTHS if seed == 0 else LENGTHS[::-1]
    return [torch.randint(1, WORDS, (length,)).tolist() for length in order]


def batch(positions: int, *, left: bool = False) -> dict[str, Any]:
    found = padded(texts(0), positions, left=left)
    # A tokenizer pads with one token; positions are counted from the first real one.
    found["input_ids"] *= found["attention_mask"]
    found["position_ids"] = (found["attention_mask"].cumsum(1) - 1).clamp_min(0)
    return found


def bert(kind: type[nn.Module] = BertForMaskedLM) -> nn.Module:
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 24}
    config = BertConfig(
        **sizes, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64
    )
    return kind(config)


def llama() -> nn.Module:
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 24}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, num_hidden_layers=2, pad_token_id=0))


def mixtral() -> nn.Module:
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 24}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    experts = {"num_local_experts": 4, "experts_implementation": "eager"}  # in float64 too
    return MixtralForCausalLM(
        MixtralConfig(**sizes, **heads, **experts, num_hidden_layers=2, pad_token_id=0)
    )


def t5() -> nn.Module:
    config = T5Config(
        vocab_size=WORDS, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config)


def wav2vec2() -> nn.Module:
    config = Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        conv_dim=(8, 8), conv_kernel=(4, 2), conv_stride=(3, 2), num_conv_pos_embeddings=3,
        num_conv_pos_embedding_groups=2, feat_extract_norm="layer", do_stable_layer_norm=True,
        apply_spec_augment=False,
    )  # fmt: skip
    return Wav2Vec2Model(config)


def remembered(make: Callable[[], nn.Module], one: Any, **options: Any) -> nscl.Memory:
    torch.manual_seed(0)
    memory = nscl.Memory(make().double(), unsupported="train")
    memory.remember([one], **options)
    return memory


@pytest.mark.parametrize("make", [bert, llama, mixtral])
@pytest.mark.parametrize("left", [False, True])
def test_texts_padded_to_the_longest_and_to_64(make: Callable[[], nn.Module], left: bool) -> None:
    short = remembered(make, batch(13, left=left))
    assert_same(short, remembered(make, batch(64, left=left)))
    counts = [rows_seen(short, n) for n in short.state_dict()["metadata"]["blocks"] if "layer" in n]
    assert set(counts) == {sum(LENGTHS)}


@pytest.mark.parametrize("make", [bert, llama])
def test_padding_on_the_left_and_on_the_right(make: Callable[[], nn.Module]) -> None:
    left, right = (remembered(make, batch(20, left=left)) for left in (True, False))
    if make is llama:  # BERT looks positions up in a table: as many rows as positions were given
        assert_same(left, right)
    a, b = (m.state_dict()["tensors"] for m in (left, right))
    for name in (n for n in a if n.startswith(("covariance/", "gradient/"))):
        assert torch.allclose(a[name], b[name], rtol=1e-10, atol=1e-12), name


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("options", [{}, {"likelihood": "categorical"}])
def test_labels_left_as_tokens(left: bool, options: Any) -> None:
    def labelled(positions: int) -> dict[str, Any]:
        found = batch(positions, left=left)
        return {**found, "labels": found["input_ids"].clone()}

    short = remembered(llama, labelled(13), **options)
    assert_same(short, remembered(llama, labelled(64), **options))
    own = remembered(llama, labelled(64), loss=lambda output, batch: output.loss)
    a, b = (m.state_dict()["tensors"]["gradient/lm_head"] for m in (short, own))
    assert not torch.allclose(a, b, rtol=1e-3)  # by hand: with the padding, or without a draw


@pytest.mark.parametrize("with_labels", [True, False])
def test_encoder_and_decoder(with_labels: bool) -> None:
    def pairs(first: int, second: int) -> dict[str, Any]:
        read, written = padded(texts(0), first), padded(texts(1), second)
        if with_labels:
            real = written["attention_mask"] == 1
            return {**read, "labels": written["input_ids"].masked_fill(~real, -100)}
        return {**read, **{f"decoder_{key}": value for key, value in written.items()}}

    short, wide = (remembered(t5, pairs(*sizes)) for sizes in ((13, 15), (64, 64)))
    assert_same(short, wide)


def test_prompts_without_labels_are_remembered_because_answers_attend_to_them() -> None:
    old, new = tokens(2, 0, 5, length=8), tokens(8, 5, 60, seed=1)
    old["labels"] = old["input_ids"].clone()
    old["labels"][:, :6] = -100  # the prompt

    def answers_moved(rows: int, **options: Any) -> float:
        model = tiny_llama()
        memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10), norms="freeze")
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        with memory.protect(optimizer):
            memory.remember([old], **options)
            assert rows_seen(memory, "lm_head") == rows
            before = model(**old).logits[:, 5:].detach()  # what predicts the two answer tokens
            for _ in range(5):
                optimizer.zero_grad()
                model(**new, labels=new["input_ids"]).loss.backward()
                optimizer.step()
        return float((model(**old).logits[:, 5:] - before).abs().max().detach())

    assert answers_moved(rows=16) < 1e-6
    assert answers_moved(rows=4, mask=lambda batch: batch["labels"] != -100) > 1e-2


def test_only_what_no_label_follows_is_padding_of_a_decoder() -> None:
    read = torch.randint(1, WORDS, (2, 6))
    labels = torch.tensor([[-100, 5, -100, 6, -100], [7, -100, -100, -100, -100]])
    memory = remembered(t5, {"input_ids": read, "labels": labels})
    assert rows_seen(memory, "decoder.block.0.layer.0.SelfAttention.q") == 4 + 1
    assert rows_seen(memory, "encoder.block.0.layer.0.SelfAttention.q") == 12


def test_a_pooled_classifier_and_a_batch_encoding() -> None:
    def make() -> nn.Module:
        return bert(BertForSequenceClassification)

    short, wide = (remembered(make, BatchEncoding(batch(n))) for n in (13, 64))
    assert_same(short, wide)
    assert rows_seen(short, "classifier") == 64


def test_frames_of_sound() -> None:
    lengths = torch.tensor([90, 60, 41])
    torch.manual_seed(1)
    sound = torch.randn(3, 120).double()

    def padded_to(samples: int) -> dict[str, Any]:
        mask = torch.arange(samples) < lengths[:, None]
        return {"input_values": sound[:, :samples] * mask, "attention_mask": mask.long()}

    memories = [remembered(wav2vec2, padded_to(n), likelihood="gaussian") for n in (90, 120)]
    frames = int(wav2vec2()._get_feat_extract_output_lengths(lengths).sum())
    for memory in memories:
        assert rows_seen(memory, "encoder.layers.0.attention.q_proj") == frames
    assert_same(*memories)
