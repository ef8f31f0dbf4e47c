"""BatchNorm statistics over tasks, against a network that never had the others."""

import copy

import pytest
import torch
from torch import nn

from nscl.errors import ModelMismatchError
from nscl.models import ModelError, NormStatistics


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2, momentum=None)),
        nn.InstanceNorm2d(2),
    ).double()


def images(task: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(task)
    draw = torch.randn(8, 1, 6, 6, generator=generator, dtype=torch.float64)
    return draw * (task + 1) + 3 * task


def learn(model: nn.Module, task: int) -> None:
    model.train()
    for _ in range(3):
        model(images(task))


def statistics_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def hooks_on(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_shared_does_nothing():
    managed, plain = network(), network()
    with NormStatistics(managed, "shared") as statistics:
        for task in range(2):
            statistics.start_task(task)
            learn(managed, task)
            learn(plain, task)
            statistics.end_task(task)
            assert hooks_on(managed) == 0
        with statistics.for_task(0):
            assert same(statistics_of(managed), statistics_of(plain))
    assert same(statistics_of(managed), statistics_of(plain))


def test_per_task_tests_every_task_as_it_was_left():
    model, seen, tested = network(), [], []
    with NormStatistics(model, "per_task") as statistics:
        for task in range(3):
            statistics.start_task(task)
            learn(model, task)
            statistics.end_task(task)
            seen.append(statistics_of(model))
            model.eval()
            tested.append(model(images(0)))
        for task in range(3):
            with statistics.for_task(task):
                assert same(statistics_of(model), seen[task])
                assert torch.equal(model(images(0)), tested[task])
            assert same(statistics_of(model), seen[2])
    assert not torch.equal(tested[0], tested[2])


def test_per_task_a_new_task_starts_from_the_one_before():
    model, plain = network(), network()
    with NormStatistics(model, "per_task") as statistics:
        for task in range(3):
            statistics.start_task(task)
            learn(model, task)
            learn(plain, task)
            statistics.end_task(task)
            # Whatever happens to the buffers between tasks, the next one starts where this ended.
            nn.init.zeros_(model[1].running_mean)
        with statistics.for_task(2):
            assert same(statistics_of(model), statistics_of(plain))


def test_per_task_the_running_task_is_tested_with_the_current_statistics():
    model = network()
    with NormStatistics(model, "per_task") as statistics:
        statistics.start_task(0)
        learn(model, 0)
        before = statistics_of(model)
        with statistics.for_task(0):
            assert same(statistics_of(model), before)


def test_per_task_an_exception_while_testing_brings_the_current_ones_back():
    model = network()
    with NormStatistics(model, "per_task") as statistics:
        for task in range(2):
            statistics.start_task(task)
            learn(model, task)
            statistics.end_task(task)
        current, buffers = statistics_of(model), [id(b) for b in model.buffers()]
        with pytest.raises(KeyboardInterrupt), statistics.for_task(0), statistics.for_task(1):
            raise KeyboardInterrupt
        assert same(statistics_of(model), current)
        assert [id(b) for b in model.buffers()] == buffers


def test_frozen_normalises_in_training_as_in_testing_and_still_learns_scale_and_shift():
    model = network()
    with NormStatistics(model, "frozen") as statistics:
        statistics.start_task(0)
        learn(model, 0)
        assert not statistics.frozen
        statistics.end_task(0)
        assert statistics.frozen
        remembered = statistics_of(model)
        want = model.eval()(images(1))
        statistics.start_task(1)
        out = model.train()(images(1))
        torch.testing.assert_close(out, want)
        out.square().sum().backward()
        for layer in (model[1], model[3][1]):
            assert layer.training
            assert layer.weight.grad is not None
            assert layer.bias.grad is not None
        learn(model, 1)
        statistics.end_task(1)
        assert same(statistics_of(model), remembered)
    assert hooks_on(model) == 0
    learn(model, 1)
    assert not same(statistics_of(model), remembered)


def test_frozen_leaves_the_model_clean_after_an_exception():
    model = network()

    def break_off() -> None:
        with NormStatistics(model, "frozen") as statistics:
            statistics.end_task(0)
            model.train()
            model(torch.zeros(2, 1, 6, 6, dtype=torch.float32))

    with pytest.raises(RuntimeError):
        break_off()
    assert hooks_on(model) == 0
    assert all(part.training for part in model.modules())


def test_frozen_the_mode_comes_back_when_the_layer_itself_fails():
    model = nn.Sequential(nn.BatchNorm2d(3))
    statistics = NormStatistics(model, "frozen")
    statistics.end_task(0)
    with pytest.raises(ValueError, match="expected 4D input"):
        model(torch.zeros(2, 3))
    assert model[0].training
    statistics.close()
    statistics.close()


def test_frozen_survives_a_copy_of_the_model():
    model = network()
    with NormStatistics(model, "frozen") as statistics:
        learn(model, 0)
        statistics.end_task(0)
        teacher = copy.deepcopy(model)
        before = statistics_of(teacher)
        learn(teacher, 1)
        assert same(statistics_of(teacher), before)
        assert all(part.training for part in teacher.modules())


@pytest.mark.parametrize("mode", ["shared", "frozen", "per_task"])
def test_a_saved_state_continues_as_if_nothing_had_happened(tmp_path, mode):
    def run(model: nn.Module, statistics: NormStatistics, tasks: range) -> None:
        for task in tasks:
            statistics.start_task(task)
            learn(model, task)
            statistics.end_task(task)

    whole = network()
    with NormStatistics(whole, mode) as straight:
        run(whole, straight, range(3))

        broken = network()
        with NormStatistics(broken, mode) as first:
            run(broken, first, range(2))
            torch.save([broken.state_dict(), first.state_dict()], tmp_path / "saved")
        resumed = network()
        weights, state = torch.load(tmp_path / "saved", weights_only=True)
        resumed.load_state_dict(weights)
        with NormStatistics(resumed, mode) as second:
            second.load_state_dict(state)
            run(resumed, second, range(2, 3))
            for task in range(3):
                with straight.for_task(task), second.for_task(task):
                    assert same(statistics_of(whole), statistics_of(resumed))


def test_a_saved_state_is_a_copy():
    model = network()
    with NormStatistics(model, "per_task") as statistics:
        statistics.end_task(0)
        state = statistics.state_dict()
        state["tasks"][0]["1"]["running_mean"].fill_(99)
        with statistics.for_task(0):
            assert model[1].running_mean.max() < 99


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing():
    model = network()
    with NormStatistics(model, "per_task") as statistics:
        statistics.end_task(0)
        good = statistics.state_dict()
        wide = copy.deepcopy(good)
        wide["tasks"][0]["1"]["running_var"] = torch.ones(4)
        other = copy.deepcopy(good)
        other["tasks"][0]["7"] = other["tasks"][0].pop("1")
        lost = {**copy.deepcopy(good), "last": 5}
        for bad, kind, message in (
            (
                wide,
                ModelMismatchError,
                r"task 0: 1\.running_var has shape \[4\], the model's \[3\]",
            ),
            (
                other,
                ModelMismatchError,
                r"are of layers \['3\.1', '7'\], the model has \['1', '3\.1'\]",
            ),
            (lost, ModelError, "ends with task 5 but has no statistics"),
            (
                {**good, "mode": "frozen"},
                ModelError,
                "bn_stats=frozen, this run has bn_stats=per_task",
            ),
            ({}, ModelError, "'mode' is missing"),
        ):
            with pytest.raises(kind, match=message):
                statistics.load_state_dict(bad)
        assert statistics.state_dict()["last"] == 0


def test_mistakes_are_answered():
    with pytest.raises(
        ModelError, match=r"no bn_stats 'per-task' \(did you mean 'per_task'\?\); choose"
    ):
        NormStatistics(network(), "per-task")
    for mode in ("frozen", "per_task"):
        with pytest.raises(ModelError, match=f"bn_stats={mode} would change nothing"):
            NormStatistics(nn.Linear(2, 2), mode)
    NormStatistics(nn.Linear(2, 2), "shared").close()
    statistics = NormStatistics(network(), "per_task")
    with pytest.raises(ModelError, match="counted from 0, got -1"):
        statistics.start_task(-1)
    statistics.close()
    with pytest.raises(ModelError, match="are closed"):
        statistics.end_task(0)
    with pytest.raises(ModelError, match="are closed"), statistics.for_task(0):
        pytest.fail("closed statistics were used")
