"""A frozen backbone: after the first task only heads learn."""

from pathlib import Path

from nscl.methods.base import Phase
from tests.methods.setups import frozen, made, moved, train

PHASE = Phase()


def test_a_frozen_backbone_stands_still_and_heads_learn(tmp_path: Path) -> None:
    model = {"name": "convnet", "width": 4}  # has running statistics, which stand still too
    setup = made("frozen", tmp_path, model=model)
    train(setup, 0, PHASE)
    before = frozen(setup.model.state_dict())
    train(setup, 1, PHASE)
    changed = moved(before, setup.model.state_dict())
    assert changed == {name for name in before if name.startswith("heads.1.")}
