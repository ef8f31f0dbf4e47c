"""Every python block of the pages about frameworks runs, with what its reader has."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.integrations import test_avalanche as avalanche_tests
from tests.test_docs import FENCE, ROOT, blocks, run

DOCUMENT = "docs/integrations.md"
OF_PEFT = "docs/integrations-peft.md"

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries, about such small runs


def sections() -> dict[str, list[tuple[int, str]]]:
    """Line and text of the python blocks under every heading."""
    text, found = (ROOT / DOCUMENT).read_text(encoding="utf-8"), {}
    headings = list(re.finditer(r"^## (.+)$", text, re.MULTILINE))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=True):
        inside = [m for m in FENCE.finditer(text, heading.end(), end) if m.group(1) == "python"]
        lines = [(text.count("\n", 0, match.start()) + 2, match.group(2)) for match in inside]
        if lines:
            found[heading.group(1)] = lines
    return found


def a_loop() -> dict[str, Any]:
    """A network, its optimizer and its data."""
    network = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    x = torch.randn(32, 8)
    return {
        "network": network,
        "optimizer": torch.optim.AdamW(network.parameters(), 1e-3),
        "loader": DataLoader(TensorDataset(x, x[:, 0].gt(0).long()), batch_size=8),
    }


def a_trainer() -> dict[str, Any]:
    from tests.integrations import test_transformers as texts

    names = {"model": texts.tiny_bert(), "collate": texts.padded}
    return {**names, "first": texts.FIRST, "second": texts.SECOND}


def a_llama() -> dict[str, Any]:
    """A language model, and texts of one part of its vocabulary after the other."""
    from tests.integrations.models import tiny_llama, tokens

    tasks = {f"task_{i + 1}": [tokens(4, 9 * i, 9 * i + 9, seed=i)] for i in range(4)}
    more = {"old": tasks["task_1"], "new": tasks["task_2"], "train": train_llama}
    return {**tasks, **more, "model": tiny_llama()}


def train_llama(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Any]) -> None:
    for batch in batches * 5:
        optimizer.zero_grad()
        model(**batch, labels=batch["input_ids"]).loss.backward()
        optimizer.step()


def a_module() -> dict[str, Any]:
    from tests.integrations import test_lightning as modules

    names = a_loop()
    return {**names, "module": modules.module("lightning.pytorch", names["network"])}


def a_strategy() -> dict[str, Any]:
    experiences = avalanche_tests.two_experiences()
    from avalanche.models import MTSimpleMLP

    model = MTSimpleMLP(input_size=8, hidden_size=32)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    return {"multi_head": model, "optimizer": optimizer, "experiences": experiences}


GIVEN: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "transformers": ("transformers", a_trainer),
    "PEFT": ("peft", a_llama),
    "accelerate": ("accelerate", a_loop),
    "Lightning": ("lightning", a_module),
    "Fabric": ("lightning", a_loop),
    "Avalanche": ("avalanche", a_strategy),
    "torch.compile": ("torch", a_loop),
}


@pytest.mark.parametrize("section", sections())
def test_the_blocks_run(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, given = GIVEN[section]
    if library == "avalanche":
        avalanche_tests.import_avalanche()
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": DOCUMENT, **given()}
    for line, source in sections()[section]:
        run(source, line, DOCUMENT, names)


def test_the_recipes_for_peft_run_one_after_the_other() -> None:
    pytest.importorskip("peft")
    names = {"__name__": OF_PEFT, **a_llama()}
    for line, source in blocks(OF_PEFT):
        run(source, line, OF_PEFT, names)
    assert names["memory"].tasks == 3
    moved = names["memory"].forgetting()
    assert 0 < moved.total.relative < 0.1
    assert all("base_layer" in layer.name for layer in moved.layers if "_proj" in layer.name)
