"""The figures of the second factor and of rules on the displacement, measured on a tiny network."""

from functools import partial
from typing import Any, Literal

import pytest
import torch
from benchmarks.catalogue import catalogue
from benchmarks.displacements import amortised, repeated
from benchmarks.memories import as_it_comes, papers_displaced, proximal
from benchmarks.steps import protected
from benchmarks.timing import Stopwatch

import nscl
from benchmarks import decompositions, displacements, factors, memories, network, timing
from nscl.core.capture.data_pass import Pass
from nscl.core.projection.projector import project_by_rule
from nscl.core.projection.proximal.plan import ProximalPlan
from nscl.core.projection.step_plan import StepPlan
from nscl.core.state import State

pytestmark = pytest.mark.usefixtures("tiny")

TARGETS = {
    "step-default": "≤ 1.15",
    "step-recall": "≤ 1.5",
    "step-displacement": "≤ 1.1",
    "remember-factors": "≤ 1.8",
    "resident-factors": "≤ 1.05",
    "recall": "≤ 1.05",
    "decomposition-task": "≤ 0.02",
}


@pytest.mark.parametrize("name", TARGETS)
def test_every_promise_can_be_measured(name: str, watch: Stopwatch) -> None:
    found = catalogue()[name].measure(watch)
    assert (found.name, str(found.target)) == (name, TARGETS[name])
    assert found.ours > 0
    assert found.ratio == found.ours / found.reference
    assert found.unit == {"resident-factors": "MiB", "decomposition-task": "s"}.get(name, "ms")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rule": nscl.Ratio(10.0)}, "every=1"),
        ({"rule": nscl.Penalty(2.0), "every": 3}, "every=3"),
        ({"rule": nscl.Budget(0.1), "every": 2, "factors": "input"}, "every=2"),
    ],
)
def test_the_figure_follows_the_default(
    options: dict[str, object], expected: str, watch: Stopwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "Memory", partial(nscl.Memory, **options))
    note = catalogue()["step-default"].measure(watch).note
    assert expected in note
    assert str(options["rule"]) in note


@pytest.mark.parametrize("rule", [nscl.Ratio(10.0), nscl.Penalty()])
def test_recall_is_measured_whatever_the_default(
    rule: nscl.Ratio | nscl.Penalty, watch: Stopwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "Memory", partial(nscl.Memory, rule=rule))
    assert catalogue()["recall"].measure(watch).ratio > 0


def test_every_turn_has_one_treatment(monkeypatch: pytest.MonkeyPatch) -> None:
    treated: list[object] = []
    for plan in (StepPlan, ProximalPlan):
        monkeypatch.setattr(plan, "treat", lambda self, *_: treated.append(type(self)))
    for memory in (papers_displaced(network.network(), every=3), three_steps()):
        turn = repeated(protected(memory), memory.every)
        for _ in range(2):
            treated.clear()
            turn()
            assert len(treated) == 1


def three_steps() -> nscl.Memory:
    rule = nscl.Penalty()
    return memories.filled(nscl.Memory(network.network(), rule=rule, every=3))


def test_times_are_those_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = [0.0]

    def tick() -> None:
        ticks[0] += 1.0

    monkeypatch.setattr(displacements, "protected", lambda _, **options: tick)
    monkeypatch.setattr(displacements, "plain", lambda: tick)
    monkeypatch.setitem(timing._CLOCKS, "wall", lambda: ticks[0])
    memory = papers_displaced(network.network(), every=4)
    found = amortised(Stopwatch(seconds=0.0), "a", "", memory, 1.1)
    assert (found.ours, found.reference) == (1e3, 1e3)


def test_the_third_line_is_part_of_a_step_with_recall(monkeypatch: pytest.MonkeyPatch) -> None:
    recalled: list[object] = []
    whole = nscl.Memory.recall

    def spy(memory: nscl.Memory, *args: Any) -> Any:
        recalled.append(args)
        return whole(memory, *args)

    monkeypatch.setattr(nscl.Memory, "recall", spy)
    for recalls in (False, True):
        step = protected(as_it_comes(network.network()), recalls=recalls)
        step()
        assert len(recalled) == recalls


@pytest.mark.parametrize("chosen", ["kronecker", "input"])
def test_a_pass_ends_before_the_decomposition(
    chosen: Literal["kronecker", "input"], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Pass] = []
    whole = Pass.run

    def spy(current: Pass, *args: Any, **options: Any) -> None:
        runs.append(current)
        whole(current, *args, **options)

    monkeypatch.setattr(Pass, "run", spy)
    factors.new_pass(chosen)()
    (current,) = runs
    assert current.batches == factors.ADDED
    assert (current.outputs is not None) == (chosen == "kronecker")
    assert current.fisher is not None


def test_a_pass_leaves_the_memory_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[nscl.Memory] = []

    def spy(*args: Any, **options: Any) -> nscl.Memory:
        made.append(nscl.Memory(*args, **options))
        return made[-1]

    monkeypatch.setattr(factors, "Memory", spy)
    factors.new_pass("kronecker")()
    assert [memory.tasks for memory in made] == [0]


def test_a_recalled_answer_is_the_networks_own() -> None:
    memory, images = as_it_comes(network.network()), network.batch().images
    with torch.no_grad():
        expected = network.forward(network.network().eval(), images)
        for parameter in memory.model.parameters():
            parameter.add_(1.0)
    assert torch.allclose(memory.recall(images, 0), expected)


def test_both_factors_of_all_layers_are_decomposed() -> None:
    state = decompositions.undecomposed().projected(State(), project_by_rule(nscl.Penalty()))
    made = proximal(network.network(), "kronecker")
    assert state.nbytes == made.nbytes  # of full rank, so nothing is left out
    assert decompositions.epochs_of_a_task() == 80


def test_a_single_decomposition_promises_nothing(watch: Stopwatch) -> None:
    found = decompositions.one_matrix(watch, 12, least=1)
    assert found.target is None
    assert found.title == "d = 12: float64 eigh ÷ float32 svd"
    assert found.ratio == found.ours / found.reference
