"""AdNS: its head phase, its teacher, its combined null spaces."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.core.projection.rules import Ratio
from nscl.core.projection.spectrum import decompose
from nscl.methods.base import Batch
from nscl.methods.projection import adns
from nscl.methods.projection.adns import AdNS, AdNSOptions
from nscl.methods.teacher import weights_of
from nscl.training.config.build import build_config
from nscl.training.config.presets import PRESETS
from nscl.training.config.schema import ConfigError
from nscl.training.config.tuned_values import ADOPTED
from nscl.training.experiment import run
from tests.methods.projecting import (
    CONVNET,
    DOMAIN,
    build,
    bwt,
    check_resumes,
    metrics,
    shift,
    train,
)
from tests.runs import small

SHORT = {"head_epochs": 2}


def started(tmp_path: Path, **options: object) -> AdNS:
    setup = build("adns", tmp_path, options={**SHORT, **options}, **CONVNET)
    method = setup.method
    assert isinstance(method, AdNS)
    train(method, 0, steps=5)
    method.end_task(0)
    setup.loaders.task = 1
    method.start_task(1)
    return method


def test_the_head_phase_leaves_everything_else_alone(tmp_path: Path) -> None:
    method = started(tmp_path)
    assert [(p.name, p.epochs) for p in method.phases(0)] == [("train", None)]
    head, main = method.phases(1)
    assert (head.name, head.epochs, main.name) == ("head", 2, "train")
    before = weights_of(method.model)
    train(method, 1, phase=head)
    moved = {n for n, w in weights_of(method.model).items() if not torch.equal(w, before[n])}
    assert moved == {"heads.1.weight", "heads.1.bias"}
    method.close()


@pytest.mark.parametrize("teacher", ["same_batch", "recorded"])
def test_the_teacher_is_the_network_at_the_end_of_the_head_phase(
    teacher: str, tmp_path: Path
) -> None:
    method = started(tmp_path, teacher=teacher, kl_coef=0.5)
    head, main = method.phases(1)
    train(method, 1, phase=head)
    method.leave_phase(1, head)
    split = method.training_split(1)
    images, labels = next(iter(method.lab.loader(split, purpose="x", augment="none")))
    with torch.no_grad():
        method.model.eval()
        expected = method.model(images, 1)
    train(method, 1, phase=main, steps=5)
    batch = Batch(images, labels, 1)
    found = method._teacher_logits(batch)
    assert found is not None
    assert torch.allclose(found, expected, atol=1e-5)
    assert method.model.training
    outcome = method.loss(batch, main)
    cross = F.cross_entropy(outcome.logits, outcome.labels)
    added = float((outcome.loss - cross).detach())
    assert added == pytest.approx(0.5 * method.metrics()["distillation"], rel=1e-4)
    assert added > 0
    true = method.lab.stream[1].train.labels
    assert (outcome.labels <= true.max()).all()  # numbers have become labels again
    method.close()


def test_a_resumed_teacher_is_where_the_network_is(tmp_path: Path) -> None:
    """Checkpoints are read into the processor's memory, wherever the run computes."""
    method = started(tmp_path)
    method.leave_phase(1, method.phases(1)[0])
    saved = method.epoch_state()
    method.lab.device = torch.device("meta")
    method.load_epoch_state(saved)
    assert method._teacher.keys() == saved["teacher"].keys()
    assert {weight.device.type for weight in method._teacher.values()} == {"meta"}
    method.close()


@pytest.mark.parametrize("a_end", [None, 20.0])
def test_the_threshold_falls_from_task_to_task(
    a_end: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules that three tasks are decomposed with: ``a_core``, then on towards ``a_end``."""
    rules: list[Ratio] = []

    def decomposed(dense: Tensor, rule: Ratio, **kwargs: Any) -> Any:
        rules.append(rule)
        return decompose(dense, rule, **kwargs)

    monkeypatch.setattr(adns, "decompose", decomposed)
    given = {"data": {"first": 4}, "optim": {"epochs": 1}}
    options = {"a_core": 80.0, "a_end": a_end, "head_epochs": 1}
    run(small("adns", tmp_path, options=options, **given))
    last = 75.0 if a_end is None else a_end
    expected = [80.0, 80.0 - (80.0 - last) / 3, 80.0 - (80.0 - last) * 2 / 3]
    assert sorted({rule.a for rule in rules}, reverse=True) == pytest.approx(expected)


def test_a_threshold_that_rises_is_refused() -> None:
    with pytest.raises(ConfigError, match="a_end 150 must not exceed a_core 100"):
        build_config("split-digits-5", {"method": "adns", "options": {"a_core": 100, "a_end": 150}})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("benchmark", ["split-cifar100-10", "split-cifar100-20", "split-digits-5"])
def test_no_preset_or_trial_lets_it_rise(preset: str, benchmark: str) -> None:
    for a_core in (None, *AdNS.tuning["a_core"]):
        options = {} if a_core is None or preset not in ADOPTED else {"a_core": a_core}
        given = {"method": "adns", "preset": preset, "options": options}
        chosen = AdNSOptions.model_validate(build_config(benchmark, given).options)
        assert chosen.threshold_of(8, 10) < chosen.threshold_of(0, 10) == chosen.a_core


def test_the_accumulated_null_space_is_cut_to_what_is_shared(tmp_path: Path) -> None:
    method = started(tmp_path, a_core=1000.0, u_k=0.9)
    first = {n: s.free for n, s in method.memory._state.spectra.items()}
    train(method, 1, steps=5)
    method.end_task(1)
    for name, spectrum in method.memory._state.spectra.items():
        eigenvalues = torch.linalg.eigvalsh(method.memory._state.covariances[name].dense())
        assert torch.allclose(spectrum.eigenvalues, eigenvalues.clamp_min(0), atol=1e-8)
        assert spectrum.free == pytest.approx(round(spectrum.free), abs=1e-3)
        assert spectrum.free <= 0.9 * (first[name] + spectrum.features) / 2
    method.close()


def test_old_features_move_less_than_under_fine_tuning(tmp_path: Path) -> None:
    options = {"a_core": 10.0, "a_end": 5.0}
    assert shift("adns", tmp_path, options=options) < shift("finetune", tmp_path) / 5


@pytest.mark.parametrize(
    "given",
    [CONVNET, DOMAIN, {"options": {"scale": "frobenius"}}],
    ids=["conv", "domain", "frobenius"],
)
def test_runs(given: dict[str, object], tmp_path: Path) -> None:
    last = metrics("adns", tmp_path, **given)[-1]
    assert 0 < last["free"] < 1
    assert last["distillation"] > 0


@pytest.mark.parametrize("phase", ["head", "train"])
@pytest.mark.parametrize("teacher", ["same_batch", "recorded"])
def test_resumes_bit_for_bit(phase: str, teacher: str, tmp_path: Path) -> None:
    check_resumes("adns", tmp_path, phase=phase, options={**SHORT, "teacher": teacher})


@pytest.mark.slow  # three seeds; one: test_quick_digits
def test_forgets_less_than_fine_tuning() -> None:
    assert bwt("adns", (("head_epochs", 3),)) > bwt("finetune") + 1


def test_presets_have_the_published_numbers() -> None:
    config = build_config("split-cifar100-20", {"method": "adns", "preset": "official"})
    assert config.options["a_core"] == 180.0
    assert config.options["scale"] == "frobenius"
    assert config.optim.lr == 1e-4
    paper = build_config("split-cifar100-10", {"method": "adns", "preset": "paper"})
    assert (paper.optim.heads_lr, paper.options["head_epochs"]) == (2e-3, 10)


def test_the_small_preset_takes_the_teachers_published_way_in_fewer_epochs() -> None:
    small_one = build_config("split-cifar100-10", {"method": "adns", "preset": "cpu"}).options
    assert small_one["head_epochs"] * small_one["head_rate"] == pytest.approx(10 * 2e-3)


@pytest.mark.parametrize(("given", "rate"), [({}, 1e-2), ({"head_rate": 0.5}, 0.5)])
def test_the_head_is_taught_at_a_constant_rate(
    given: dict[str, object], rate: float, tmp_path: Path
) -> None:
    """The backbone's schedule is not the teacher's."""
    settings = {"epochs": 2, "milestones": [1]}
    config = small("adns", tmp_path, options={**SHORT, **given}, optim=settings)
    assert config.optim.heads_lr == 1e-2
    log = tmp_path / run(config).directory / "metrics.jsonl"
    records = map(json.loads, log.read_text().splitlines())
    found = [r for r in records if r["kind"] == "epoch" and r["task"] == 1]
    assert [r["lr"] for r in found if r["phase"] == "head"] == [[rate], [rate]]
    assert [r["lr"][0] for r in found if r["phase"] == "train"] == [1e-2, 5e-3]
