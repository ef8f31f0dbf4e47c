"""What presets say beyond Adam-NSCL's own table: the needs of other methods at full size."""

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from nscl.data import catalogue
from nscl.methods import METHODS
from nscl.models import build_model
from nscl.models.networks.preact_resnet import PreActResNet18
from nscl.training.config.build import build_config
from nscl.training.config.presets import method_settings
from nscl.training.config.schema import RunConfig

FILES = {
    file.name.removesuffix(".toml"): tomllib.loads(file.read_text())
    for file in files("nscl.methods.presets").iterdir()
    if file.name.endswith(".toml")
}
FULL_SIZE = ("paper", "official")
BENCHMARKS = ("split-cifar100-10", "split-cifar100-20", "split-tinyimagenet-25")


def settled(method: str, preset: str, benchmark: str = BENCHMARKS[0]) -> RunConfig:
    return build_config(benchmark, {"method": method, "preset": preset})


@pytest.mark.parametrize("preset", FULL_SIZE)
@pytest.mark.parametrize("method", ["ewc", "mas", "muc-mas"])
def test_importances_are_taken_of_all_images(method: str, preset: str) -> None:
    for benchmark in BENCHMARKS:
        assert settled(method, preset, benchmark).options["samples"] is None
    given = {"method": method, "preset": preset, "options": {"samples": 7}}
    assert build_config(BENCHMARKS[0], given).options["samples"] == 7


@pytest.mark.parametrize("preset", FULL_SIZE)
def test_si_has_the_damping_of_cifar_and_no_decay(preset: str) -> None:
    config = settled("si", preset)
    assert (config.options["xi"], config.optim.weight_decay) == (1e-3, 0.0)
    assert settled("ewc", "official").optim.weight_decay == 5e-5


@pytest.mark.parametrize("preset", FULL_SIZE)
@pytest.mark.parametrize("method", ["gpm", "sgp"])
def test_patches_outnumber_the_features_of_the_widest_layer(method: str, preset: str) -> None:
    config = settled(method, preset)
    model = build_model("resnet18", image_shape=(3, 32, 32), classes_per_task=[10], width=64)
    assert isinstance(model.backbone, PreActResNet18)
    features = max(p[0].numel() for _, p in model.backbone_parameters(norms=False))
    assert config.options["samples"] * 4 * 4 > features == 4608


@pytest.mark.parametrize("method", ["adam-nscl", "connector", "adns"])
def test_official_is_what_the_released_code_does(method: str) -> None:
    """Batch means, a scaled projector, the float32 rule; ``paper`` has none of it."""
    names = ("scale", "features", "literal")
    released, printed = (settled(method, preset).options for preset in ("official", "paper"))
    assert [released[name] for name in names] == ["frobenius", "batch_mean", True]
    assert [printed[name] for name in names] == ["none", "per_sample", False]


def test_warming_up_a_head_stays_a_small_part_of_the_training() -> None:
    for preset in ("official", "cpu"):
        config = settled("lwf", preset)
        assert config.options["warmup_epochs"] <= config.optim.epochs / 4


def test_small_presets_are_as_they_were() -> None:
    """Recorded results name them by the hash of these very settings."""
    samples = {"ewc": 1000, "mas": 1000, "muc-mas": 400, "gpm": 125, "sgp": 125}
    for preset in ("cpu", "quick"):
        for method, number in samples.items():
            assert settled(method, preset).options["samples"] == number
        assert settled("si", preset).optim.weight_decay == 0.0
    assert settled("si", "quick").options["xi"] == 0.1


@pytest.mark.parametrize("preset", [*FULL_SIZE, "cpu", "quick"])
def test_every_method_takes_every_preset(preset: str) -> None:
    for method in METHODS:
        for benchmark in BENCHMARKS:
            assert settled(method, preset, benchmark).preset == preset


@pytest.mark.parametrize("method", sorted(FILES))
def test_a_file_has_nothing_that_would_be_ignored(method: str) -> None:
    content: dict[str, Any] = dict(FILES[method])
    assert method in METHODS
    assert content.pop("extends", method) in FILES
    assert content.keys() <= {"all", "published", *FULL_SIZE, "cpu", "quick"}
    for section in content.values():
        special = section.get("on", {})
        assert special.keys() <= catalogue.BENCHMARKS.keys()
        for tables in (section, *special.values()):
            assert tables.keys() <= {"on", "options", "optim", "model"}


def test_the_preset_is_stronger_than_what_holds_for_all_and_a_benchmark_than_its_section() -> None:
    def kept(preset: str, benchmark: str) -> Any:
        return method_settings(preset, benchmark, "mega").get("options", {}).get("per_class")

    assert (kept("paper", BENCHMARKS[0]), kept("paper", BENCHMARKS[1])) == (None, 50)
    assert (kept("cpu", BENCHMARKS[0]), kept("cpu", BENCHMARKS[1])) == (5, 5)
    ratios = [method_settings("official", b, "connector")["options"]["a"] for b in BENCHMARKS]
    assert ratios == [10.0, 30.0, 10.0]


def test_a_method_of_ones_own_has_no_file() -> None:
    assert method_settings("cpu", BENCHMARKS[0], "../presets/lwf") == {}
    assert method_settings("cpu", BENCHMARKS[0], "package.module:Class") == {}
