"""Plan files: runs, sweeps, what the command line changes, and mistakes."""

from pathlib import Path

import pytest

from nscl.engines.plan_file import PlanFile
from nscl.errors import NsclError
from nscl.training.config.short_names import SHORT_NAMES
from nscl.training.config.validation import validated

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
    assert {job.config.preset for job in jobs} == {"cpu-2"}


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
    with pytest.raises(NsclError, match="did you mean 'frozen norms'"):
        rows("frozen norm")
    with pytest.raises(NsclError, match="use all alone"):
        rows("all,ewc")
    with pytest.raises(NsclError, match="did you mean 'finetune'"):
        rows("finetun")


def test_figures_may_be_expected_of_methods_variants_and_what_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        PLAN.replace('"finetune", ', "").replace("[expected.finetune]", "[expected.adam-nscl]")
        + "[expected.'frozen norms']\nacc = 1\n[expected.'adam-nscl norms=ewc']\nacc = 1\n"
        "[sweep]\nmethod.norms = ['ewc', 'freeze']\n"
    )
    over = {"methods": "frozen norms", "sweep": {"method.norms": ["free"]}}
    for given in ({}, over):  # what the command line changes or leaves out is no mistake
        assert len(PlanFile.read(path, given).expected) == 3


def test_every_variant_of_the_shipped_plans_can_be_picked() -> None:
    for path in (Path(__file__).parents[2] / "experiments").glob("*.toml"):
        names = [entry.name for entry in PlanFile.read(path, {}).variants]
        for name in names:
            (row,) = PlanFile.read(path, {"methods": name}).plan({})[0].variants
            assert row.label == name
        if names:
            picked = PlanFile.read(path, {"methods": " ,".join(names)}).plan({})[0].variants
            assert [row.label for row in picked] == names


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
        ('methods = ["finetun"]', "did you mean 'finetune'?"),
        ("seeds = 0", "names no seed"),
        ('metods = "all"', "did you mean 'methods'?"),
        ("[sweep]\noptim.lr = 3", "needs a list"),
        ("[overrides.gem]\noptions.margin = 1", "'gem', which is not among"),
        ('[[variants]]\nname = "adam-nscl"\nmethod = "gpm"', "two rows are called 'adam-nscl'"),
        ("[settings]\noptim.lrr = 3", "did you mean 'optim.lr'?"),
        ("[settings]\ndata = 3", "'data' is a table of settings"),
        ('method = "gem"', "plan.toml: there is no option 'method' (did you mean 'methods'?"),
        ("[expected.adam-nsc]\nacc = 1", "plan.toml: figures are expected of 'adam-nsc', which"),
        ("methods = ", "is not a TOML file"),
        ("[overrides.adam-nscl]\nmethod.a = 3", "'method' in overrides.adam-nscl has no effect"),
        ("[settings]\nseed = 3", "'seed' in settings has no effect: use seeds"),
        ('[[variants]]\nname = ""\nmethod = "gpm"', "'variants.0.name': must not be empty"),
        ("methods = 3", "plan.toml: option 'methods': must be text or a list, not 3"),
        ('methods = ["gem", 3]', "plan.toml: option 'methods.1': must be text, not 3"),
        ('seeds = "x"', "option 'seeds': must be a whole number or a list, not 'x'"),
        ('seeds = [1, "x"]', "option 'seeds.1': must be a whole number, not 'x'"),
        ("[expected.adam-nscl]\nacc = [1]", "'expected.adam-nscl.acc': must be a number or text"),
        ("[settings]\nlr = 1\noptim.lr = 2", "settings: option 'lr' is short for 'optim.lr'"),
        ("[overrides.adam-nscl]\nlr = 1\noptim.lr = 2", "overrides.adam-nscl: option 'lr' is"),
        ("[sweep]\nlr = [1]\noptim.lr = [2]", "'optim.lr' and 'lr' are one and the same option"),
        ('[[variants]]\nmethod = "gpm"', "option 'variants.0.name': is required"),
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


def test_tables_of_a_plan_take_short_names(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    text = """
    benchmark = "split-digits-5"
    methods = ["finetune", "lwf"]
    seeds = 1
    [settings]
    {epochs} = 1
    [overrides.lwf]
    {lr} = 0.5
    [[variants]]
    name = "wide"
    method = "finetune"
    settings.{width} = 99
    [sweep]
    {batch_size} = [4, 8]
    """
    found = []
    for names in ({}, SHORT_NAMES):
        words = {name: names.get(name, name) for name in SHORT_NAMES}
        path.write_text(text.format(**words))
        found.append([job.config for job in PlanFile.read(path, {}).plan({})[0].jobs()])
    assert found[0] == found[1]
    values = {(c.optim.epochs, c.optim.lr, c.model.width, c.optim.batch_size) for c in found[0]}
    assert values == {(1, 0.01, 64, 4), (1, 0.01, 64, 8), (1, 0.5, 64, 4), (1, 0.5, 64, 8),
                      (1, 0.01, 99, 16)}  # fmt: skip
