"""Short names of settings that are typed often: ``--lr`` for ``--optim.lr``.

They are names of the command line only: files, Python and the run's folder use the full ones.
"""

from collections.abc import Mapping

SHORT_NAMES: Mapping[str, str] = {
    "tasks": "data.tasks",
    "order": "data.order",
    "epochs": "optim.epochs",
    "lr": "optim.lr",
    "batch_size": "optim.batch_size",
    "width": "model.width",
    "model": "model.name",
}


def full_name(name: str) -> str:
    """The full name of a setting that may be typed short.

    >>> full_name("batch-size"), full_name("method.a")
    ('optim.batch_size', 'method.a')
    """
    return SHORT_NAMES.get(name.replace("-", "_"), name)


def short_name(name: str) -> str | None:
    """The short name of a setting, if it has one.

    >>> short_name("optim.lr"), short_name("optim.gamma")
    ('lr', None)
    """
    return next((short for short, full in SHORT_NAMES.items() if full == name), None)
