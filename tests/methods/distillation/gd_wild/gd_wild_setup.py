"""A GD-WILD of the digits with a small pool, at the start or at a later task."""

from pathlib import Path

from nscl.methods.distillation.gd_wild.method import GDWild
from tests.methods.setups import made

OPTIONS = {"pool": "procedural", "pool_size": 400, "budget": 30}


def gd(tmp_path: Path, **given: object) -> tuple[object, GDWild]:
    options = OPTIONS | given.pop("options", {})  # type: ignore[operator]
    setup = made("gd-wild", tmp_path, options=options, **given)
    assert isinstance(setup.method, GDWild)
    return setup, setup.method


def at_task(task: int, tmp_path: Path, **given: object) -> tuple[object, GDWild]:
    setup, method = gd(tmp_path, **given)
    for old in range(task):
        method.sources.keep(old)
    method.start_task(task)
    return setup, method
