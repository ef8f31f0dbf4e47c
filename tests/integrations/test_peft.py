"""LoRA beside a memory, on a tiny Llama: the three recipes, and what cannot be kept."""

import copy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

peft = pytest.importorskip("peft")
pytest.importorskip("transformers")

import nscl  # noqa: E402
from nscl.errors import ModelMismatchError, NsclError, UnsupportedError  # noqa: E402
from nscl.integrations.peft import merge_and_unload, prepare  # noqa: E402
from tests.integrations.models import Batch, tiny_llama, tokens  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:no optimizer is protected"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # between PEFT and transformers
]
EXACT = nscl.Tolerance(1e-10)
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
OLD = tokens(2, 0, 5, length=6)  # few texts of few words: layers see inputs of low rank
NEW = [tokens(12, 5, 25, seed=1), tokens(12, 25, 45, seed=2)]


def lora(**options: Any) -> Any:
    return peft.LoraConfig(**{"r": 8, "target_modules": TARGETS, **options})


def wrapped(model: nn.Module, **options: Any) -> Any:
    torch.manual_seed(1)
    return peft.get_peft_model(model, lora(**options))


def remembered(rule: Any = EXACT, **options: Any) -> tuple[Any, nscl.Memory]:
    model = tiny_llama()
    memory = nscl.Memory(model, rule=rule, unsupported="freeze", **options)
    memory.remember([OLD])
    return model, memory


def logits(model: Any, batch: Batch = OLD) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        found: torch.Tensor = model(**batch).logits
    return found


def moved(model: Any, before: torch.Tensor, batch: Batch = OLD) -> float:
    return float((logits(model, batch) - before).abs().max())


def train(model: Any, batch: Batch, memory: nscl.Memory | None = None, steps: int = 40) -> float:
    """The loss that is reached on these texts."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    protection = memory.protect(optimizer) if memory else None
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    if protection:
        protection.remove()
    return float(loss_of(model, batch).detach())


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = model(**batch, labels=batch["input_ids"]).loss
    return loss


def share_of_plain(plain: Any, start: float, reached: float, batch: Batch) -> float:
    """How much is reached of the fall of the loss that plain LoRA reaches from the same start."""
    before = logits(plain)
    share = (start - reached) / (start - train(plain, batch))
    assert moved(plain, before) > 0.1  # which is what a memory is for
    print(f"reached {share:.1%} of plain LoRA's fall")  # for docs/integrations-peft.md
    return share


def grow(adapted: Any, **options: Any) -> None:
    """A second adapter beside the first, whose B is zero; both are trained."""
    adapted.add_adapter("second", lora(**options))
    adapted.base_model.set_adapter(["default", "second"])


@pytest.mark.parametrize("rule", [EXACT, nscl.Penalty()])
def test_recipe_one_the_base_keeps_its_abilities_while_one_lora_learns(rule: Any) -> None:
    model, memory = remembered(rule)
    untouched = copy.deepcopy(model)
    before, start = logits(model), float(loss_of(model, NEW[0]).detach())
    adapted = wrapped(model)
    prepare(adapted, memory, rule=EXACT)
    assert moved(adapted, before) == 0
    reached = train(adapted, NEW[0], memory)
    assert moved(adapted, before) < 1e-6
    assert memory.forgetting().total.relative < 1e-10
    assert share_of_plain(wrapped(untouched), start, reached, NEW[0]) > 0.8


@pytest.mark.parametrize(("texts", "grows"), [(1, False), (2, True)])
def test_recipe_two_several_tasks_in_one_lora(texts: int, grows: bool) -> None:
    model, memory = remembered()
    before = [logits(model)]
    adapted = wrapped(model, r=16)
    prepare(adapted, memory)
    train(adapted, NEW[0], memory)
    few = {"input_ids": NEW[0]["input_ids"][:texts, :6]}
    memory.remember([few])
    before.append(logits(adapted, few))
    plain, start = copy.deepcopy(adapted), float(loss_of(adapted, NEW[1]).detach())
    if grows:  # without: the first LoRA has r=16 inputs of B, and two texts use nearly all
        grow(adapted)
        prepare(adapted, memory)
    reached = train(adapted, NEW[1], memory)
    assert moved(adapted, before[0]) < 1e-6
    assert moved(adapted, before[1], few) < 1e-6
    assert share_of_plain(plain, start, reached, NEW[1]) > 0.8


def test_recipe_three_one_lora_per_task_merged() -> None:
    model, memory = remembered()
    texts, before = [OLD], [logits(model)]
    for new in NEW:
        plain, start = wrapped(copy.deepcopy(model)), float(loss_of(model, new).detach())
        adapted = wrapped(model)
        prepare(adapted, memory)
        assert share_of_plain(plain, start, train(adapted, new, memory), new) > 0.8
        model = merge_and_unload(adapted, memory)
        for batch, was in zip(texts, before, strict=True):
            assert moved(model, was, batch) < 1e-6
        few = {"input_ids": new["input_ids"][:1, :6]}
        memory.remember([few])
        texts.append(few)
        before.append(logits(model, few))
    assert memory.tasks == 3
    assert not any("lora" in name or "base_layer" in name for name in memory.remembered)


def test_after_merging_all_weights_may_be_trained() -> None:
    model, memory = remembered()
    before = logits(model)
    adapted = wrapped(model)
    prepare(adapted, memory)
    train(adapted, NEW[0], memory)
    memory.remember([OLD])
    model = merge_and_unload(adapted, memory)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" not in name)
        if "norm" not in name:
            torch.testing.assert_close(parameter.detach(), memory.remembered[name])
    train(model, NEW[1], memory, steps=5)
    assert moved(model, before) < 1e-6


def test_frozen_base_weights_are_not_in_the_report() -> None:
    model, memory = remembered()
    prepare(wrapped(model, target_modules=["q_proj"]), memory)
    names = [layer.name for layer in memory.report().layers]
    assert len(names) == 4
    assert all("lora_" in name for name in names)
    assert memory.spectra().keys() == {n for n in names if "lora_A" in n}


def test_a_trained_adapter_is_held_if_remembered_and_an_error_otherwise() -> None:
    model = tiny_llama()
    memory = nscl.Memory(model, rule=EXACT, unsupported="freeze")
    other = nscl.Memory(copy.deepcopy(model), rule=EXACT, unsupported="freeze")
    other.remember([OLD])
    adapted = wrapped(model, r=32)
    train(adapted, NEW[0], steps=5)
    memory.remember([OLD])
    prepare(adapted, memory)
    before = logits(adapted)
    start = float(loss_of(adapted, NEW[1]).detach())
    assert train(adapted, NEW[1], memory) < start
    assert moved(adapted, before) < 1e-6

    trained = wrapped(other.model)
    train(trained, NEW[0], steps=1)
    with pytest.raises(NsclError, match=r"trained already .* merge it into the model") as caught:
        prepare(trained, other)
    assert "\n" not in str(caught.value)


def test_rslora_several_adapters_and_dropout() -> None:
    model, memory = remembered()
    before = logits(model)
    adapted = wrapped(model, use_rslora=True, lora_dropout=0.2)
    adapted.add_adapter("second", lora(r=4, target_modules=["v_proj"]))
    prepare(adapted, memory)
    train(adapted, NEW[0], memory, steps=5)
    assert moved(adapted, before) < 1e-6
    adapted.set_adapter("second")
    prepare(adapted, memory)
    assert moved(adapted, before) == 0
    train(adapted, NEW[0], memory, steps=5)
    assert moved(adapted, before) < 1e-6


class Classifier(nn.Module):
    """An encoder that is wrapped inside of a model, and a head that PEFT trains as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 4, 2))
        self.head = nn.Linear(16, 3)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).flatten(1))


def images(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, 3, 3, generator=generator, dtype=torch.float64)


def fit(model: nn.Module, memory: nscl.Memory, x: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    with memory.protect(optimizer):
        for _ in range(10):
            optimizer.zero_grad()
            (model(x) - 1).square().mean().backward()
            optimizer.step()


def test_convolutions_in_a_wrapped_part_of_a_model() -> None:
    model, x = Classifier(), images(1)
    memory = nscl.Memory(model, rule=EXACT)
    memory.remember([x])
    before = model(x).detach()
    model.body = peft.get_peft_model(model.body, peft.LoraConfig(r=4, target_modules=["0", "2"]))
    prepare(model.body, memory)
    model.head.requires_grad_(False)
    fit(model, memory, images(8, 1))
    assert (model(x) - before).abs().max() < 1e-12
    assert (model(images(1, 2)) - memory.recall(images(1, 2))).abs().max() > 1e-3
    merged = merge_and_unload(model.body, memory)
    assert model.body is merged
    assert (model(x) - before).abs().max() < 1e-12
    assert "body.0.weight" in memory.remembered


def test_modules_to_save_are_free_until_they_are_remembered() -> None:
    model, x = Classifier(), images(1)
    memory = nscl.Memory(model, rule=EXACT)
    memory.remember([x])
    config = peft.LoraConfig(r=4, target_modules=["body.0"], modules_to_save=["head"])
    adapted = peft.get_peft_model(model, config)
    prepare(adapted, memory)
    hidden = model.body(x).detach()
    fit(adapted, memory, images(8, 1))
    assert (model.body(x) - hidden).abs().max() < 1e-12
    free = {e.name for e in memory.report().layers if e.protected_by == "free until remembered"}
    assert "head.modules_to_save.default" in free
    merged = merge_and_unload(adapted, memory)
    assert type(merged.head) is nn.Linear
    assert not any(name.startswith("head") for name in memory.spectra())


def unkept() -> Iterator[Any]:
    yield pytest.param(lora(use_dora=True), "no plain LoRA .Dora", id="dora")
    yield pytest.param(lora(target_modules=["embed_tokens"]), "lora .Embedding.*", id="embedding")
    yield pytest.param(lora(lora_bias=True), "has a bias", id="bias")
    ia3 = peft.IA3Config(target_modules=["v_proj"], feedforward_modules=[])
    yield pytest.param(ia3, "PEFT's ia3 .*supported is LoRA", id="ia3")
    prompt = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    yield pytest.param(prompt, "PeftModelForCausalLM has no LoRA layer", id="prompt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("config", "message"), list(unkept()))
def test_what_cannot_be_kept_is_an_error_in_one_line(config: Any, message: str) -> None:
    model, memory = remembered()
    adapted = peft.get_peft_model(model, config)
    state = memory._state
    with pytest.raises(NsclError, match=message) as caught:
        prepare(adapted, memory)
    assert "\n" not in str(caught.value)
    assert memory._state is state


def test_quantised_weights_are_an_error() -> None:
    model, memory = remembered()
    adapted = wrapped(model, target_modules=["q_proj"])
    layer = model.model.layers[1].self_attn.q_proj.base_layer
    layer.weight = nn.Parameter(torch.zeros(32, 32, dtype=torch.int8), requires_grad=False)
    with pytest.raises(UnsupportedError, match=r"layers\.1.*are quantised.* floating point"):
        prepare(adapted, memory)


def test_a_merged_adapter_and_an_empty_memory_are_errors() -> None:
    model, memory = remembered()
    adapted = wrapped(model)
    adapted.merge_adapter()
    with pytest.raises(UnsupportedError, match="unmerge_adapter"):
        prepare(adapted, memory)
    adapted.unmerge_adapter()
    empty = nscl.Memory(model, rule=EXACT, unsupported="freeze")
    with pytest.raises(NsclError, match=r"prepare comes after memory\.remember"):
        prepare(adapted, empty)
    with pytest.raises(NsclError, match="has no LoRA layer in this memory's model"):
        prepare(tiny_llama(), nscl.Memory(tiny_llama(), unsupported="freeze"))


def test_without_prepare_the_memory_points_to_it() -> None:
    model, memory = remembered()
    wrapped(model)
    with pytest.raises(ModelMismatchError, match=r"nscl\.integrations\.peft\.prepare"):
        memory.report()


def test_importing_nscl_imports_no_peft() -> None:
    code = "import sys, nscl; nscl.integrations; print('peft' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
