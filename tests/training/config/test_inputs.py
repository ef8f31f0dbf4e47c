"""Settings of texts: the tokenizer joins the configuration, pictures' settings are refused."""

from typing import Any

import pytest

from nscl.training.config.build import build_config, complete
from nscl.training.config.schema import ConfigError, RunConfig


def config(**given: Any) -> RunConfig:
    return build_config("clinc150-10", {"method": "finetune", **given})


def test_the_tokenizer_is_part_of_the_name() -> None:
    usual = config()
    assert (usual.data.tokenizer, usual.data.length) == ("words", 32)
    assert usual.identity()["data"]["tokenizer"] == "words"
    others = [config(data={"tokenizer": "words:99"}), config(data={"length": 16})]
    assert len({usual.run_name, *(other.run_name for other in others)}) == 3
    assert config(data={"tokenizer": "words", "length": 32}).run_name == usual.run_name
    # One made by hand gets it when it is run.
    by_hand = RunConfig(benchmark="text:mails", method="finetune")
    assert complete(by_hand).data.tokenizer == "words"


def test_pictures_have_none_and_keep_their_names() -> None:
    digits = build_config("split-digits-5", {"method": "finetune"})
    assert digits.data.tokenizer is None
    assert not {"tokenizer", "length"} & digits.identity()["data"].keys()
    assert not {"size", "weights"} & digits.identity()["model"].keys()
    larger = build_config("split-digits-5", {"method": "finetune", "model": {"size": 16}})
    assert larger.identity()["model"]["size"] == 16


def test_a_pretrained_encoder_brings_its_own_tokens() -> None:
    assert config(model={"name": "minilm"}).data.tokenizer == "minilm"
    assert config(model={"name": "hf:mine"}).data.tokenizer == "hf:mine"
    # A network that starts from nothing can learn any tokens.
    mixed = config(model={"name": "tiny-transformer"}, data={"tokenizer": "minilm"})
    assert mixed.data.tokenizer == "minilm"
    with pytest.raises(ConfigError, match="minilm was trained with its own tokens"):
        config(model={"name": "minilm"}, data={"tokenizer": "words"})


@pytest.mark.parametrize("method", ["muc-mas", "gd-wild", "instaparam"])
def test_methods_of_pictures(method: str) -> None:
    with pytest.raises(ConfigError, match=f"'{method}' needs pictures, and clinc150-10 has texts"):
        config(method=method)


@pytest.mark.parametrize(
    "given",
    [
        {"data": {"augment": "crop-flip"}},
        {"data": {"size": 8}},
        {"model": {"size": 8}},
        {"model": {"memory_format": "channels_last"}},
    ],
)
def test_settings_of_pictures(given: dict[str, Any]) -> None:
    ((table, values),) = given.items()
    option = f"{table}.{next(iter(values))}"
    with pytest.raises(ConfigError, match=f"option '{option}' = .* is for pictures, and clinc"):
        config(**given)


def test_presets_of_texts() -> None:
    quick = config()
    assert (quick.preset, quick.model.name) == ("quick", "tiny-transformer")
    cpu = config(preset="cpu")
    assert (cpu.model.name, cpu.optim.lr, cpu.optim.heads_lr) == ("minilm", 2e-4, 2e-3)
    assert (cpu.optim.epochs, cpu.optim.batch_size) == (2, 32)
