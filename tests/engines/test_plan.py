"""From what was said to runs: methods, seeds, grids, plan files."""

from pathlib import Path

import pytest

from nscl.cli.many import Settings
from nscl.engines.plan import (
    Plan,
    Variant,
    choose_methods,
    parse_axes,
    parse_seeds,
    pick_names,
    variant,
)
from nscl.engines.plan_file import PlanFile, grid_points
from nscl.errors import NsclError
from nscl.methods import METHODS
from nscl.training.config import RunConfig, validated

PLAN = """
description = "norms"
benchmark = "split-digits-5"
preset = "quick"
methods = ["finetune", "adam-nscl"]
seeds = [0, 3]

[settings]
optim.epochs = 7
[overrides.adam-nscl]
options.a = 30
[[variants]]
name = "frozen norms"
method = "adam-nscl"
settings.options.norms = "freeze"
[cost]
machine = "2 cores"
minutes = 3
[expected.finetune]
acc = 61.2
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def test_settings_of_many_runs_are_those_of_one() -> None:
    special = {"benchmark", "method", "seed", "options", "out", "label"}
    assert set(Settings.model_fields) == set(RunConfig.model_fields) - special
    for name, field in Settings.model_fields.items():
        if name != "preset":  # None: the benchmark's usual one
            assert field.default == RunConfig.model_fields[name].default, name


def test_a_plan_file_becomes_runs_seed_by_seed(plan_file: Path) -> None:
    plan, notes = PlanFile.read(plan_file, {}).plan({})
    jobs = plan.jobs()
    rows = ["finetune", "adam-nscl", "frozen norms"]
    assert [job.title for job in jobs] == [f"{row} seed {s}" for s in (0, 3) for row in rows]
    assert {job.config.optim.epochs for job in jobs} == {7}
    assert {job.config.preset for job in jobs} == {"quick"}
    assert jobs[1].config.options["a"] == jobs[2].config.options["a"] == 30
    assert [job.config.options.get("norms") for job in jobs[:3]] == [None, "ewc", "freeze"]
    assert [job.config.label for job in jobs[:3]] == [None, None, "frozen norms"]
    assert notes == ("note: cost: machine 2 cores, minutes 3",)
    assert len({job.name for job in jobs}) == 6


def test_the_command_line_wins_over_the_plan(plan_file: Path) -> None:
    over = {"methods": "frozen norms,finetune", "seeds": [1], "benchmark": None}
    file = PlanFile.read(plan_file, over).model_copy(update={"overrides": {}})
    plan, _ = file.plan({"optim": {"epochs": 2}, "preset": "cpu"})
    assert [variant.label for variant in plan.variants] == ["finetune", "frozen norms"]
    jobs = plan.jobs()
    assert [job.config.seed for job in jobs] == [1, 1]
    assert {job.config.optim.epochs for job in jobs} == {2}
    assert {job.config.preset for job in jobs} == {"cpu"}


def test_a_narrowed_plan_forgets_overrides_of_rows_left_out_only(plan_file: Path) -> None:
    def rows(names: str) -> list[tuple[str, object]]:
        jobs = PlanFile.read(plan_file, {"methods": names}).plan({})[0].jobs()
        return [(job.label, job.config.options.get("a")) for job in jobs if job.config.seed == 0]

    assert rows("finetune") == [("finetune", None)]
    assert rows(" frozen norms , finetune") == [("finetune", None), ("frozen norms", 30)]
    text = plan_file.read_text()
    plan_file.write_text(text.replace("[overrides.adam-nscl]", "[overrides.adam-nsc]"))
    for names in ("finetune", "frozen norms"):
        with pytest.raises(NsclError, match="overrides of 'adam-nsc', which is not among"):
            rows(names)
    plan_file.write_text(text.replace('["finetune", "adam-nscl"]', '"all"'))
    assert rows("finetune") == [("finetune", None)]
    with pytest.raises(NsclError, match="Did you mean 'frozen norms'"):
        rows("frozen norm")
    with pytest.raises(NsclError, match="say all alone"):
        rows("all,ewc")
    with pytest.raises(NsclError, match="Did you mean 'finetune'"):
        rows("finetun")


def test_figures_may_be_expected_of_methods_variants_and_what_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        PLAN.replace('"finetune", ', "").replace("[expected.finetune]", "[expected.adam-nscl]")
        + "[expected.'frozen norms']\nacc = 1\n[expected.'adam-nscl norms=ewc']\nacc = 1\n"
        "[sweep]\nmethod.norms = ['ewc', 'freeze']\n"
    )
    over = {"methods": "frozen norms", "sweep": {"method.norms": ["free"]}}
    for said in ({}, over):  # what the command line changes or leaves out is no mistake
        assert len(PlanFile.read(path, said).expected) == 3


def test_every_variant_of_the_shipped_plans_can_be_picked() -> None:
    for path in (Path(__file__).parents[2] / "experiments").glob("*.toml"):
        names = [entry.name for entry in PlanFile.read(path, {}).variants]
        for name in names:
            (row,) = PlanFile.read(path, {"methods": name}).plan({})[0].variants
            assert row.label == name
        if names:
            picked = PlanFile.read(path, {"methods": " ,".join(names)}).plan({})[0].variants
            assert [row.label for row in picked] == names


def test_the_longest_name_wins() -> None:
    known = ["a", "b", "a, b", "a, b, c"]
    assert pick_names("a,b", known) == ["a, b"]
    assert pick_names("b,a", known) == ["b", "a"]
    assert pick_names(" a,b , c,gem,,gem", known) == ["a, b, c", "gem"]


def test_a_sweep_is_the_full_grid_of_every_method(plan_file: Path) -> None:
    file = validated(
        PlanFile,
        {
            "benchmark": "split-digits-5",
            "methods": ["adam-nscl"],
            "seeds": 1,
            "sweep": {"method.a": [10, 20], "optim": {"lr": [0.1, 0.2, 0.3]}},
        },
    )
    jobs = file.plan({})[0].jobs()
    seen = {(job.config.options["a"], job.config.optim.lr) for job in jobs}
    assert seen == {(a, lr) for a in (10, 20) for lr in (0.1, 0.2, 0.3)}
    assert jobs[0].label == "adam-nscl a=10 lr=0.1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('methods = ["finetun"]', "Did you mean 'finetune'?"),
        ("seeds = 0", "names no seed"),
        ('metods = "all"', "Did you mean 'methods'?"),
        ("[sweep]\noptim.lr = 3", "wants a list"),
        ("[overrides.gem]\noptions.margin = 1", "'gem', which is not among"),
        ('[[variants]]\nname = "adam-nscl"\nmethod = "gpm"', "two rows are called 'adam-nscl'"),
        ("[settings]\noptim.lrr = 3", "Did you mean 'optim.lr'?"),
        ("[settings]\ndata = 3", "'data' is a table of settings"),
        ('method = "gem"', "plan.toml: there is no option 'method'. Did you mean 'methods'?"),
        ("[expected.adam-nsc]\nacc = 1", "plan.toml: figures are expected of 'adam-nsc', which"),
        ("methods = ", "is no TOML file"),
        ("[overrides.adam-nscl]\nmethod.a = 3", "'method' in overrides.adam-nscl has no effect"),
        ("[settings]\nseed = 3", "'seed' in settings has no effect: use seeds"),
        ('[[variants]]\nname = ""\nmethod = "gpm"', "option 'variants.0.name': string should"),
        ('[[variants]]\nmethod = "gpm"', "option 'variants.0.name': must be said"),
    ],
)
def test_mistakes_in_a_plan_are_named(tmp_path: Path, change: str, message: str) -> None:
    key = change.split(" ")[0]
    rest = 'benchmark = "split-digits-5"\n' + ("" if key == "methods" else 'methods = "adam-nscl"')
    path = tmp_path / "plan.toml"
    path.write_text(f"{rest}\n{change}\n")
    with pytest.raises(NsclError) as problem:
        PlanFile.read(path, {}).plan({})[0].jobs()
    assert message in str(problem.value)
    assert "\n" not in str(problem.value)


def test_all_leaves_out_methods_that_are_not_for_the_stream() -> None:
    names, unfit = choose_methods("all", "split-digits-5")
    assert names == list(METHODS)
    assert not unfit
    names, unfit = choose_methods("all", "permuted-digits")
    assert "lwf" in unfit
    assert set(names) | set(unfit) == set(METHODS)
    assert choose_methods("gem, finetune,gem", "split-digits-5")[0] == ["gem", "finetune"]


@pytest.mark.parametrize("text", ["0", "", "a", "-1,2", "1.5"])
def test_seeds_that_are_none(text: str) -> None:
    with pytest.raises(NsclError, match="seeds"):
        parse_seeds(text)


def test_axes_take_lists_words_and_numbers() -> None:
    axes = parse_axes(["optim.milestones=[1,2],[3]", "method.literal=true,false", "method.a=1e2"])
    assert axes == {
        "optim.milestones": [[1, 2], [3]],
        "method.literal": [True, False],
        "method.a": [100.0],
    }
    for text in ("method.a", "=3", "method.a="):
        with pytest.raises(NsclError, match="--set wants"):
            parse_axes([text])
    assert grid_points({}) == [{}]


@pytest.mark.parametrize("name", ["seed", "method", "benchmark", "out", "threads", "data-dir"])
def test_what_names_a_run_is_not_varied(name: str) -> None:
    with pytest.raises(NsclError, match="not varied"):
        variant("finetune", {name: 1})


def test_threads_are_divided_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nscl.engines.local.available_cores", lambda: 8)
    rows = (Variant("x", "finetune"),)

    def threads(side_by_side: int | None, **said: object) -> int | None:
        plan = Plan("split-cifar10-5", rows, (0,), {"preset": "paper", **said})
        return plan.jobs(side_by_side=side_by_side)[0].config.threads

    assert [threads(n) for n in (1, 2, 3, 8, 20, None)] == [8, 4, 2, 1, 1, 1]
    assert threads(2, threads=7) == 7
    assert threads(1, preset="quick") == 1
