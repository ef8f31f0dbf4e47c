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
from nscl.training.config.presets import PRESETS, method_settings, newest
from nscl.training.config.schema import ConfigError, RunConfig

FILES = {
    file.name.removesuffix(".toml"): tomllib.loads(file.read_text())
    for file in files("nscl.methods.presets").iterdir()
    if file.name.endswith(".toml")
}
FULL_SIZE = ("paper", "official")
SMALL = ("cpu-1", "cpu-2", "quick")
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
    for preset in ("official", "half", "cpu-1", "cpu-2"):
        config = settled("lwf", preset)
        assert config.options["warmup_epochs"] <= config.optim.epochs / 4


def test_small_presets_are_as_they_were() -> None:
    """Recorded results name them by the hash of these very settings."""
    samples = {"ewc": 1000, "mas": 1000, "muc-mas": 400, "gpm": 125, "sgp": 125}
    for preset in SMALL:
        for method, number in samples.items():
            assert settled(method, preset).options["samples"] == number
        assert settled("si", preset).optim.weight_decay == 0.0
    assert settled("si", "quick").options["xi"] == 0.1


@pytest.mark.parametrize("preset", PRESETS)
def test_every_method_takes_every_preset(preset: str) -> None:
    for method in METHODS:
        for benchmark in BENCHMARKS:
            assert settled(method, preset, benchmark).preset == preset


@pytest.mark.parametrize("method", sorted(FILES))
def test_a_file_has_nothing_that_would_be_ignored(method: str) -> None:
    content: dict[str, Any] = dict(FILES[method])
    assert method in METHODS
    assert content.pop("extends", method) in FILES
    assert content.keys() <= {"all", "published", "cpu", *PRESETS} - {"cpu-1"}
    for section in content.values():
        special = section.get("on", {})
        assert special.keys() <= catalogue.BENCHMARKS.keys()
        for tables in (section, *special.values()):
            assert tables.keys() <= {"on", "options", "optim", "model"}


def test_the_preset_is_stronger_than_what_holds_for_all_and_a_benchmark_than_its_section() -> None:
    def kept(preset: str, benchmark: str) -> Any:
        return method_settings(preset, benchmark, "mega").get("options", {}).get("per_class")

    assert (kept("paper", BENCHMARKS[0]), kept("paper", BENCHMARKS[1])) == (None, 50)
    assert (kept("cpu-1", BENCHMARKS[0]), kept("cpu-1", BENCHMARKS[1])) == (5, 5)
    ratios = [method_settings("official", b, "connector")["options"]["a"] for b in BENCHMARKS]
    assert ratios == [10.0, 30.0, 10.0]


def test_a_method_of_ones_own_has_no_file() -> None:
    assert method_settings("cpu", BENCHMARKS[0], "../presets/lwf") == {}
    assert method_settings("cpu", BENCHMARKS[0], "package.module:Class") == {}


def test_cpu_is_its_newest_version_and_the_first_one_keeps_its_name_in_files() -> None:
    newest_one, first_one = settled("ewc", "cpu"), settled("ewc", "cpu-1")
    assert (newest_one.preset, newest_one.identity()["preset"]) == ("cpu-2", "cpu-2")
    assert (first_one.preset, first_one.identity()["preset"]) == ("cpu-1", "cpu")
    assert (first_one.model.width, first_one.model.stem_stride) == (8, None)
    assert (newest_one.model.width, newest_one.model.stem_stride) == (16, 2)
    assert newest_one == settled("ewc", "cpu-2")
    assert newest_one.run_name != first_one.run_name


def test_texts_have_one_version_of_cpu_and_its_runs_keep_their_names() -> None:
    found = [build_config("clinc150-10", {"preset": name}) for name in ("cpu", "cpu-1", "cpu-2")]
    assert found[0] == found[1] == found[2]
    assert found[0].identity()["preset"] == "cpu"


def test_values_tuned_for_the_first_version_of_cpu_are_not_those_of_the_second() -> None:
    assert settled("lwf", "cpu-1").options["strength"] == 10.0
    assert settled("gpm", "cpu-1").options["threshold"] == 0.9
    assert settled("gpm", "cpu-2").options["threshold"] != 0.9


def test_half_is_official_in_fewer_epochs() -> None:
    for method in METHODS:
        half, whole = (settled(method, name) for name in ("half", "official"))
        assert half.options.keys() == whole.options.keys()
        assert (half.model.width, half.optim.epochs, half.optim.milestones) == (32, 16, (6, 12))
        changed = {"epochs": 80, "milestones": (30, 60)}
        assert half.optim.model_copy(update=changed) == whole.optim
    assert settled("adam-nscl", "half").options == settled("adam-nscl", "official").options
    assert [m / 16 for m in (6, 12)] == [30 / 80, 60 / 80]


def test_an_unknown_preset_is_named_with_the_nearest_or_all_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no preset 'cpu-3' \(did you mean 'cpu-[12]'\?\)"):
        newest("cpu-3", BENCHMARKS[0])
    with pytest.raises(ConfigError, match=r"no preset 'laptop'; known: cpu, paper, .*cpu-2"):
        newest("laptop", BENCHMARKS[0])


def test_a_given_number_of_epochs_is_that_of_every_task() -> None:
    given = {"method": "finetune", "preset": "cpu", "optim": {"epochs": 3}}
    assert build_config(BENCHMARKS[0], given).optim.first_epochs is None
    given["optim"] = {"epochs": 3, "first_epochs": 9}
    assert build_config(BENCHMARKS[0], given).optim.first_epochs == 9


def test_another_network_has_neither_the_width_nor_the_stem_of_the_preset() -> None:
    given = {"method": "finetune", "preset": "cpu", "model": {"name": "convnet"}}
    model = build_config(BENCHMARKS[0], given).model
    assert (model.width, model.stem_stride, model.memory_format) == (None, None, "channels_last")
