"""Texts to features: padding has no part in them, and the vectorised attention is the plain one."""

import math

import pytest
import torch
from torch import Tensor

from nscl.models import ModelError, build_model
from nscl.models.networks.tiny_transformer import Attention, TinyTransformer

LENGTH, VOCABULARY = 7, 30


def texts(length: int = LENGTH, *, junk: int = 0) -> dict[str, Tensor]:
    """Texts of 1 to 4 tokens; padding has the id ``junk``."""
    mask = (torch.arange(length) < torch.arange(1, 5)[:, None]).long()
    ids = torch.randint(2, VOCABULARY, (4, length), generator=torch.Generator().manual_seed(1))
    return {"input_ids": torch.where(mask == 1, ids, junk), "attention_mask": mask}


@torch.no_grad()
def test_padding_changes_nothing() -> None:
    network = TinyTransformer(LENGTH, VOCABULARY, width=8, heads=2).double()
    features = network(texts())
    assert features.shape == (4, 8) == (4, network.out_features)
    torch.testing.assert_close(network(texts(junk=9)), features, rtol=0, atol=1e-14)
    short = {name: tensor[:, :4] for name, tensor in texts().items()}
    torch.testing.assert_close(network(short), features, rtol=0, atol=1e-14)
    for row in range(4):
        alone = {name: tensor[row : row + 1, : row + 1] for name, tensor in texts().items()}
        torch.testing.assert_close(network(alone)[0], features[row], rtol=0, atol=1e-14)


@torch.no_grad()
def test_attention_is_the_plain_formula() -> None:
    attention = Attention(6, 2).double()
    x, mask = torch.randn(3, 5, 6).double(), torch.tensor([[1, 1, 1, 0, 0]] * 3)
    expected = torch.zeros(3, 5, 6).double()
    for row in range(3):
        q, k, v = (f(x[row]) for f in (attention.query, attention.key, attention.value))
        for head in (slice(0, 3), slice(3, 6)):
            for place in range(5):
                scores = [float(q[place, head] @ k[other, head]) for other in range(3)]
                weights = torch.tensor([math.exp(s / math.sqrt(3)) for s in scores]).double()
                expected[row, place, head] = (weights / weights.sum()) @ v[:3, head]
    torch.testing.assert_close(attention(x, mask), attention.out(expected), rtol=1e-6, atol=1e-7)


def test_order_of_tokens_matters() -> None:
    network = TinyTransformer(LENGTH, VOCABULARY, width=8, heads=2)
    mask = torch.ones(1, 2, dtype=torch.int64)
    one, other = (
        network({"input_ids": torch.tensor([ids]), "attention_mask": mask})
        for ids in ([3, 4], [4, 3])
    )
    assert not torch.allclose(one, other)


def test_wrong_sizes() -> None:
    with pytest.raises(ModelError, match="width 10 is not a multiple of heads=4"):
        TinyTransformer(4, 4, width=10)
    with pytest.raises(ModelError, match="the vocabulary in text_shape must be"):
        build_model("tiny-transformer", text_shape=(4, 0), classes_per_task=[2])


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("resnet18", {"text_shape": (4, 9)}, "'resnet18' takes images, not texts: choose tiny-tra"),
        ("tiny-transformer", {"image_shape": (1, 8, 8)}, "takes texts, not images: choose resnet"),
        ("minilm", {"image_shape": (1, 8, 8)}, "'minilm' takes texts, not images"),
        ("tiny-transformer", {}, "give image_shape for images or text_shape for texts"),
        ("tiny-transformer", {"text_shape": (4, 9), "size": 8}, "model.size is for images"),
    ],
)
def test_a_model_takes_pictures_or_texts(
    name: str, shape: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        build_model(name, classes_per_task=[2], **shape)  # type: ignore[arg-type]


def test_heads_on_texts() -> None:
    model = build_model("tiny-transformer", text_shape=(7, 30), classes_per_task=[2, 3], width=8)
    assert model(texts(), 1).shape == (4, 3)
    assert model(texts(), [0, 1]).shape == (4, 5)
    assert len(list(model.norm_parameters())) == 2 * 5
