"""Layers that are fed the same tensor get the same selection of it, and no other."""

import pytest
import torch

import nscl
from nscl.core.covariance.observations import InputRows, TokenIds
from nscl.core.padding.selection import Selection
from tests.core.padding.texts import padded

REAL = torch.tensor([True, False, True])


def values(part: object) -> torch.Tensor:
    assert isinstance(part, InputRows)
    return part.values


def test_the_same_tensor_gives_the_same_selection_until_it_is_written_to() -> None:
    select, given = Selection(), torch.randn(1, 3, 2)
    (first,) = select.of(InputRows(given), REAL)
    (again,) = select.of(InputRows(given.view(1, 3, 2)), REAL)
    assert values(again) is values(first)
    assert torch.equal(values(first), given[:, REAL])
    given.mul_(2)
    (written,) = select.of(InputRows(given), REAL)
    assert torch.equal(values(written), given[:, REAL])
    (other,) = select.of(InputRows(given), ~REAL)
    assert torch.equal(values(other), given[:, ~REAL])


def test_tokens_and_whole_calls() -> None:
    select, ids = Selection(), torch.tensor([[4, 5, 6]])
    (found,) = select.of(TokenIds(ids), REAL)
    assert isinstance(found, TokenIds)
    assert found.ids.tolist() == [4, 6]
    whole = InputRows(torch.randn(1, 3, 2))
    assert select.of(whole, None) == [whole]


class SelfAttention(torch.nn.Module):
    """Query and key from one tensor, as transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(11, 6)
        self.q, self.k = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, object]:
        x = self.words(input_ids)
        return {"logits": self.head(self.q(x) * self.k(x))}


@pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")
def test_inputs_are_shared_beside_padding_too() -> None:
    memory = nscl.Memory(SelfAttention().double())
    batch = padded([[1, 2, 3], [4]], 5)
    memory.remember([batch, padded([[5], [6, 7]], 3)])
    found = memory._state.covariances
    assert found["q"] is found["k"]
    assert found["q"] is not found["head"]
    assert found["q"].rows == 7
