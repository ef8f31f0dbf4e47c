"""Names of runs never change: committed runs are found by their plans, presets keep their values.

``settings.json`` has the hash of every benchmark, preset and method that the package ships. A new
method or preset adds entries: ``python -m tests.golden.test_run_names`` writes those that are
missing. It never changes an entry, for a changed hash is a run that would not be found again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nscl.engines.plan_file import PlanFile
from nscl.methods import external_images as external
from nscl.methods.registry import METHODS
from nscl.results import config_hash, preset_of_record, run_name
from nscl.training.config.build import build_config
from nscl.training.config.presets import PRESETS
from nscl.training.config.schema import RunConfig
from nscl.training.config.validation import validated

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("settings.json")
BENCHMARKS = ("split-digits-5", "split-cifar100-10", "split-cifar100-20", "split-tinyimagenet-25")
COMMITTED = {path.parent.name: path for path in (ROOT / "results").rglob("config.json")}
FINISHED = {  # runs of a plan that are committed; those of `nscl tune` have no plan file
    "clinc150-10": 6,
    "clinc150-10-one-head": 6,
    "mobilenetv2-spectra": 1,
    "nscl": 15,
    "nscl-cpu-2": 7,
    "nscl-lwf": 4,
    "nscl-lwf-cpu-2": 4,
    "preset-cpu-2": 4,
    "running-statistics": 6,
    "split-cifar100-10": 20,
    "split-cifar100-10-ablations": 29,
    "split-cifar100-10-losses": 3,
    "split-cifar100-10-rules": 3,
    "split-cifar100-10-seeds": 15,
    "split-cifar100-20": 5,
    "split-tinyimagenet-25": 5,
}


OLDER_THAN_AN_OPTION = {  # of `nscl tune`: before `augment`, and before `pool` was settled
    "split-cifar100-10-a-gem-0-3a492ac2",
    "split-cifar100-10-gd-wild-0-9771887c",
    "split-cifar100-10-gem-0-69ac390f",
    "split-cifar100-10-mega-0-90b03ff7",
    "split-cifar100-10-muc-mas-0-2fd512d0",
}


def name_of(config: RunConfig) -> str:
    return run_name(
        benchmark=config.benchmark,
        method=config.method,
        seed=config.seed,
        config=config.identity(),
    )


def test_a_committed_configuration_has_the_name_of_its_folder() -> None:
    for name, path in COMMITTED.items():
        recorded = json.loads(path.read_text())
        config = validated(RunConfig, recorded["config"])
        assert name_of(config) == name
        assert config_hash(config.identity()) == recorded["hash"]


@pytest.mark.parametrize("plan", sorted(FINISHED))
def test_a_plan_finds_its_committed_runs(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Which pool of pictures a method takes depends on the disk; these runs had TinyImageNet.
    monkeypatch.setattr(external, "choose_pool", lambda *_: "tinyimagenet")
    jobs = PlanFile.read(ROOT / "experiments" / f"{plan}.toml", {}).plan({})[0].jobs()
    assert len({job.name for job in jobs} & COMMITTED.keys()) == FINISHED[plan]


def test_a_committed_run_is_what_its_settings_build() -> None:
    """Every option written out, as in the command that repeats a run."""
    changed = set()
    for name, path in COMMITTED.items():
        recorded = json.loads(path.read_text())["config"]
        given = {key: value for key, value in recorded.items() if key != "benchmark"}
        given["preset"] = preset_of_record(recorded["preset"])
        if name_of(build_config(recorded["benchmark"], given)) != name:
            changed.add(name)
    assert changed == OLDER_THAN_AN_OPTION


def shipped_settings() -> Iterator[tuple[str, str]]:
    """Every combination by name, and the hash of its configuration."""
    for benchmark in BENCHMARKS:
        for preset in PRESETS:
            for method in METHODS:
                given: dict[str, Any] = {"preset": preset, "method": method}
                if method in ("muc-mas", "gd-wild"):  # else it depends on the disk
                    given["options"] = {"pool": "procedural"}
                identity = build_config(benchmark, given).identity()
                yield f"{benchmark} {preset} {method}", config_hash(identity)


def test_presets_keep_their_values() -> None:
    assert dict(shipped_settings()) == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    before = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    GOLDEN.write_text(json.dumps({**dict(shipped_settings()), **before}, indent=1) + "\n")
