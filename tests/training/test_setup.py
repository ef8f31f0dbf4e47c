"""The parts of a run: batches drawn from its seed, and combinations that cannot be built."""

from pathlib import Path

import pytest
import torch

from nscl.errors import NsclError
from nscl.training.config.schema import ConfigError, RunConfig
from nscl.training.process.device import Ranks
from nscl.training.setup import Loaders, Setup
from tests.runs import small


def labels(loaders: Loaders, **options: object) -> list[torch.Tensor]:
    split = loaders.stream[0].train
    return [found for _, found in loaders(split, purpose="here", **options)]  # type: ignore[arg-type]


def test_the_same_seed_makes_the_same_parts(tmp_path: Path) -> None:
    first, again, other = (
        Setup.build(small("finetune", tmp_path, seed=seed), Ranks()) for seed in (0, 0, 1)
    )
    same = zip(first.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    order, twin, apart = (torch.cat(labels(s.loaders)) for s in (first, again, other))
    assert torch.equal(order, twin)
    assert not torch.equal(order, apart)


def test_every_purpose_and_task_has_an_order_of_its_own(tmp_path: Path) -> None:
    loaders = Setup.build(small("finetune", tmp_path), Ranks()).loaders
    split = loaders.stream[0].train
    orders = [torch.cat([found for _, found in loaders(split, purpose=p)]) for p in ("a", "b")]
    loaders.task = 1
    orders.append(torch.cat([found for _, found in loaders(split, purpose="a")]))
    assert not any(torch.equal(orders[0], order) for order in orders[1:])


def test_a_last_batch_of_one_image_is_left_out_only_in_training(tmp_path: Path) -> None:
    """BatchNorm cannot learn from it."""
    loaders = Setup.build(small("finetune", tmp_path), Ranks()).loaders
    count = len(loaders.stream[0].train)
    size = next(size for size in range(8, count) if count % size == 1)
    assert sum(map(len, labels(loaders, batch_size=size))) == count - 1
    assert sum(map(len, labels(loaders, batch_size=size, shuffle=False))) == count


def test_the_first_tasks_only(tmp_path: Path) -> None:
    assert len(Setup.build(small("finetune", tmp_path, data={"first": 2}), Ranks()).stream) == 2


def test_frozen_statistics_of_random_weights_are_refused(tmp_path: Path) -> None:
    config = small("independent", tmp_path, bn_stats="frozen")
    with pytest.raises(ConfigError, match="frozen does not go with 'independent'"):
        Setup.build(config, Ranks())


def test_data_from_python_cannot_be_opened_by_name() -> None:
    config = RunConfig.model_validate({"benchmark": "mine", "data": {"digest": "abc"}})
    with pytest.raises(ConfigError, match=r"nscl\.run\(config, stream=\.\.\.\)"):
        Setup.build(config, Ranks())


def test_a_stem_of_another_stride_reaches_the_network(tmp_path: Path) -> None:
    model = {"name": "resnet18", "width": 4, "stem_stride": 2}
    built = Setup.build(small("finetune", tmp_path, model=model), Ranks()).model
    assert built.backbone.conv.stride == (2, 2)  # type: ignore[union-attr]
    with pytest.raises(NsclError, match="'mlp' has no option 'stem_stride'"):
        Setup.build(small("finetune", tmp_path, model={"stem_stride": 2}), Ranks())
