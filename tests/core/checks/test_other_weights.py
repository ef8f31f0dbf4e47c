"""A memory is loaded beside the weights it was made of, or warns exactly where they differ."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import nscl
from nscl.errors import ModelMismatchError
from tests.core.protected_scene import EXACT, Scene, mlp, new_data, protected_scene, sgd

OTHER = "made of other weights than the model has in {}"
RULES: dict[str, dict[str, Any]] = {
    "hard": {},
    "soft": {"rule": nscl.Ridge()},
    "all free": {"rule": nscl.Ratio(1e9)},
    "displacement": {"rule": nscl.Ridge(), "acts_on": "displacement"},
    "proximal": {"rule": nscl.Penalty()},
    "on disk": {"offload": "disk"},
}
RULE = pytest.mark.parametrize("options", RULES.values(), ids=RULES.keys())


def saved(path: Path, **options: Any) -> Scene:
    """A memory that was saved in the middle of the next task."""
    scene = protected_scene(**options)
    scene.train()
    scene.memory.save(path)
    return scene


def with_reference(scene: Scene) -> nn.Module:
    model = copy.deepcopy(scene.model)
    model.load_state_dict({**model.state_dict(), **scene.memory._state.reference})
    return model


def without_digests(path: Path) -> None:
    """The file as an older nscl wrote it."""
    with safe_open(path, "pt") as file:
        metadata = json.loads(file.metadata()["nscl"])
    assert metadata.pop("digests")
    save_file(load_file(path), path, {"nscl": json.dumps(metadata)})


@RULE
def test_weights_of_remember_and_of_save_are_the_memorys_own(tmp_path: Path, options: Any) -> None:
    scene = saved(tmp_path / "m", **options)
    for model in (copy.deepcopy(scene.model), with_reference(scene)):  # a warning is an error
        assert nscl.Memory.load(tmp_path / "m", model).tasks == 1


@RULE
def test_one_other_number_is_noticed_under_every_rule(tmp_path: Path, options: Any) -> None:
    scene = saved(tmp_path / "m", **options)
    pulls = scene.memory.acts_on == "displacement"
    with torch.no_grad():
        scene.model[2].bias[1] *= 1 + 1e-15
    with pytest.warns(nscl.NsclWarning, match=OTHER.format("2\\.")) as caught:
        nscl.Memory.load(tmp_path / "m", scene.model)
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    assert "trained further since then, go on" in message
    assert "memory.forget('2')" in message
    assert ("pull them back" in message) == pulls


def test_training_after_the_save_is_noticed_too(tmp_path: Path) -> None:
    """The memory cannot know that it was protected: the warning has both explanations."""
    scene = saved(tmp_path / "m")
    scene.train()
    with pytest.warns(nscl.NsclWarning, match=OTHER.format("0, 2")):
        nscl.Memory.load(tmp_path / "m", scene.model)


def test_a_converted_model_still_has_the_reference_weights(tmp_path: Path) -> None:
    scene = protected_scene()
    scene.memory.save(tmp_path / "m")
    for dtype in (torch.float32, torch.bfloat16):
        nscl.Memory.load(tmp_path / "m", scene.model.to(dtype))
    with pytest.warns(nscl.NsclWarning, match=OTHER.format("0, 2")):
        nscl.Memory.load(tmp_path / "m", scene.model.double())  # rounded on the way


def test_half_precision_is_compared_as_exactly(tmp_path: Path) -> None:
    scene = saved(tmp_path / "m", model=mlp().bfloat16(), old=torch.randn(3, 6).bfloat16())
    nscl.Memory.load(tmp_path / "m", scene.model)
    scene.train()
    with pytest.warns(nscl.NsclWarning, match=OTHER.format("0, 2")):
        nscl.Memory.load(tmp_path / "m", scene.model)


def test_an_older_file_knows_the_reference_only(tmp_path: Path) -> None:
    scene = saved(tmp_path / "m")
    without_digests(tmp_path / "m")
    nscl.Memory.load(tmp_path / "m", with_reference(scene))
    with pytest.warns(nscl.NsclWarning, match=OTHER.format("0, 2")):
        nscl.Memory.load(tmp_path / "m", scene.model)


def test_norm_layers_are_compared_and_excluded_ones_are_not(tmp_path: Path) -> None:
    scene = saved(tmp_path / "m", model=mlp(norm=True), exclude=["3"])
    with torch.no_grad():
        scene.model[3].weight += 1
        scene.model[1].weight += 1
    with pytest.warns(nscl.NsclWarning, match=OTHER.format(r"1\.")):
        loaded = nscl.Memory.load(tmp_path / "m", scene.model)
    loaded.forget("1")  # as the warning says


def test_a_memory_that_is_saved_right_after_remember_needs_no_digests() -> None:
    scene = protected_scene()
    assert scene.memory.state_dict()["metadata"]["digests"] == {}
    scene.train()
    digests = scene.memory.state_dict()["metadata"]["digests"]
    assert set(digests) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_a_memory_can_be_saved_after_its_layers_were_replaced(tmp_path: Path) -> None:
    scene = protected_scene()
    scene.model[2] = nn.Linear(7, 5).double()
    scene.memory.save(tmp_path / "m")
    assert nscl.Memory.load(tmp_path / "m", scene.model, exclude=["2"]).tasks == 1


@pytest.mark.parametrize("rule", [EXACT, nscl.Ridge()])
def test_a_new_layer_under_an_old_name_is_reported_before_it_is_pulled(rule: Any) -> None:
    scene = protected_scene(rule=rule, acts_on="displacement")
    scene.model[2] = nn.Linear(7, 3).double()
    optimizer = sgd(scene.model.parameters())
    scene.memory.protect(optimizer)
    with pytest.warns(nscl.NsclWarning, match=r"model has in 2\. acts_on='displacement' will pull"):
        step(scene, optimizer)
    step(scene, optimizer)  # once is enough


def step(scene: Scene, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    scene.model(new_data(scene.old)).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("rule", [nscl.Ridge(), nscl.Ratio(1e9), nscl.Penalty()])
def test_a_second_optimizer_goes_on_where_the_first_one_ended(rule: Any) -> None:
    """Protected steps explain every displacement under a rule that holds no direction fully."""
    scene = protected_scene(rule=rule, acts_on="displacement")
    scene.train()
    scene.memory.merge(copy.deepcopy(scene).memory)  # takes no step back
    scene.protection.remove()
    optimizer = sgd(scene.model.parameters())
    scene.memory.protect(optimizer)
    step(scene, optimizer)


def test_a_fresh_memory_takes_over_one_of_the_same_weights_only() -> None:
    scene = protected_scene()
    twin, other = copy.deepcopy(scene.model), mlp()
    taken = nscl.Memory(twin, rule=EXACT)
    taken.merge(scene.memory)
    assert taken.tasks == 1
    fresh = nscl.Memory(other, rule=EXACT)
    with pytest.raises(ModelMismatchError, match=r"'0.bias' of this model is not what the other"):
        fresh.merge(scene.memory)
    assert fresh.tasks == 0
