"""One validated configuration, three doors: command line, TOML file, Python. No torch in here.

Where a value comes from, weakest first: the defaults below, the preset (``presets.py``), a TOML
file, the command line or Python. What describes the experiment is hashed into the run's name;
where it runs (folders, device, threads, display) and what people call it are written down but do
not change the name.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nscl.errors import NsclError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

C = TypeVar("C", bound=BaseModel)
TABLES = ("options", "optim", "data", "model", "sweep")  # settings that hold others


class ConfigError(NsclError, ValueError):
    """A configuration that cannot be run: names the option, the value and what is allowed."""


class Part(BaseModel):
    """A frozen part of the configuration that refuses unknown names; its words are the help's."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Optim(Part):
    """How weights are learned."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    """The optimizer, fresh for every task."""
    lr: float = Field(1e-3, gt=0)
    """Rate of the backbone in the first task."""
    later_lr: float | None = Field(None, gt=0)
    """Rate of the backbone in all other tasks; as lr if not said."""
    head_lr: float | None = Field(None, gt=0)
    """Rate of the heads; as lr if not said."""
    norm_lr: float | None = Field(None, gt=0)
    """Rate of normalisation layers; as lr if not said, in later tasks too."""
    weight_decay: float = Field(0.0, ge=0)
    """Of everything but heads: in the gradient (adam, sgd) or decoupled (adamw)."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Of sgd."""
    epochs: int = Field(5, ge=1)
    """Per task."""
    batch_size: int = Field(32, ge=1)
    """Images per step."""
    milestones: tuple[int, ...] = ()
    """Epochs at which all rates are multiplied by gamma."""
    gamma: float = Field(0.5, gt=0)
    """What rates are multiplied by at milestones."""

    def backbone_lr(self, task: int) -> float:
        """Rate of weights that all tasks share."""
        return self.lr if task == 0 or self.later_lr is None else self.later_lr

    @property
    def is_plain(self) -> bool:
        """Whether a step is a rate times the gradient: SGD without momentum or decay."""
        return self.name == "sgd" and not self.momentum and not self.weight_decay

    @property
    def heads_lr(self) -> float:
        """Rate of the current task's head."""
        return self.lr if self.head_lr is None else self.head_lr

    @property
    def norms_lr(self) -> float:
        """Rate of normalisation layers' scale and shift."""
        return self.lr if self.norm_lr is None else self.norm_lr

    def factor(self, epoch: int) -> float:
        """What the rates are multiplied by in an epoch."""
        return self.gamma ** sum(epoch >= milestone for milestone in self.milestones)


class Data(Part):
    """Which stream of tasks."""

    order: Literal["natural", "random"] = "natural"
    """Of the classes."""
    order_seed: int = 0
    """Of the random order."""
    tasks: int | None = Field(None, ge=1)
    """How many tasks the classes are divided into."""
    first: int | None = Field(None, ge=1)
    """Train on the first so many tasks only."""
    size: int | None = Field(None, ge=4)
    """Pixels to which pictures of folder: streams are resized."""
    scenario: Literal["task", "domain"] | None = None
    """A head per task or one for all; as the benchmark is meant if not said."""
    augment: Literal["default", "none", "crop-flip"] = "default"
    """Of training images; default is what the benchmark is trained with."""
    max_bytes: int | None = Field(None, ge=0)
    """Pictures that need more memory than this are decoded while training."""
    digest: str | None = None
    """Of a stream that was handed over in Python; not to be said."""


class Model(Part):
    """Which network."""

    name: str = "resnet18"
    """See nscl list models."""
    width: int | None = Field(None, ge=1)
    """Channels of its first stage, or units of a layer."""
    memory_format: Literal["contiguous", "channels_last"] = "contiguous"
    """Of images and weights: a matter of speed."""


class RunConfig(Part):
    """Everything about one run."""

    benchmark: str
    """See nscl list benchmarks; or folder:PATH, your own pictures in class folders."""
    method: str = "adam-nscl"
    """See nscl list methods; or package.module:Class, a method of your own. Without: adam-nscl."""
    preset: Literal["paper", "official", "cpu", "quick"] = "quick"
    """All that is not said. Without: paper for the paper's three benchmarks, quick elsewhere."""
    seed: int = Field(0, ge=0)
    """Of all that is random. Without: 0."""
    options: dict[str, Any] = {}
    """Of the method: say --method.NAME instead."""
    optim: Optim = Optim()
    """How weights are learned."""
    data: Data = Data()
    """Which stream of tasks."""
    model: Model = Model()
    """Which network."""
    bn_stats: Literal["shared", "frozen", "per_task"] = "shared"
    """BatchNorm's running statistics over the tasks."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of training; bf16 is autocast."""
    eval_each_epoch: bool = False
    """Test the current task after every epoch, for curves."""
    track_old_losses: int = Field(0, ge=0)
    """Log the training loss of the first so many tasks after every epoch. It looks at old data (up
    to 512 images of each), so it is for pictures of what is forgotten only."""
    # Where and how it runs, and what reports call it: not part of the run's name.
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    threads: int | None = Field(None, ge=1)
    """Of torch on the processor."""
    data_dir: Path | None = None
    """Where data are looked for first; then $NSCL_DATA, then the cache."""
    out: Path = Path("runs")
    """The folder of run folders. Without: runs."""
    label: str | None = Field(None, min_length=1)
    """What reports call it; its method and unusual options if not said."""

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if value.split(":")[0] not in ("auto", "cpu", "cuda", "mps"):
            raise ValueError("device must be auto, cpu, cuda (or cuda:N) or mps")
        return value

    def identity(self) -> dict[str, Any]:
        """What describes the experiment, ready for JSON; its hash names the run."""
        elsewhere = {"device", "threads", "data_dir", "out", "label"}
        # Absent unless asked for: runs made before it could be asked for keep their names.
        unasked = set() if self.track_old_losses else {"track_old_losses"}
        return self.model_dump(mode="json", exclude=elsewhere | unasked)

    def place(self) -> dict[str, Any]:
        """Where and how it runs, without folders of one machine; and its label, if it has one."""
        label = {} if self.label is None else {"label": self.label}
        return {"device": self.device, "threads": self.threads, **label}

    @classmethod
    def build(cls, benchmark: str, *layers: Mapping[str, Any]) -> Self:
        """Merge layers of settings, weakest first, and validate the sum.

        In the first layer None is a value: there is nothing below that it could leave as it is.
        """
        first, *others = layers or ({},)
        merged: dict[str, Any] = {"benchmark": benchmark, **first}
        for layer in others:
            merged = merge(merged, layer)
        return validated(cls, merged)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second one winning; None there means "not said".

    But for a method's own options: nobody says one of those without meaning it.
    """
    for layer in (base, over):
        _check_tables(layer)
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if key == "options" and isinstance(value, Mapping):
            result[key] = {**(below or {}), **value}
        elif isinstance(value, Mapping):
            result[key] = merge(below if isinstance(below, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return result


def _check_tables(settings: Mapping[str, Any]) -> None:
    """What has settings of its own is a table: a bare value would be lost below another layer."""
    for name in TABLES:
        value = settings.get(name)
        if value is not None and not isinstance(value, Mapping | BaseModel):
            raise ConfigError(
                f"option {name!r} is a table of settings, {name}.NAME = VALUE; not {value!r}"
            )


def validated(
    kind: type[C], values: Mapping[str, Any], *, where: str = "", file: Path | None = None
) -> C:
    """Validate, or say in one line which option is wrong and what it may be.

    ``where`` is the table that the options are in, such as ``method.``; ``file`` has said them.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as problem:
        first = problem.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        said = f"{file}: " if file else ""
        if first["type"] == "extra_forbidden":
            told = f"there is no option {where + path!r}.{nearest(path, option_names(kind))}"
            raise ConfigError(f"{said}{told}") from problem
        raise ConfigError(f"{said}option {where + path!r}: {_why(first)}") from problem


def wrong_value(problem: ValidationError) -> str:
    """The first wrong value in one line, its option as it is typed: ``--optim.later-lr``."""
    first = problem.errors()[0]
    parts = [part for part in first["loc"] if isinstance(part, str)]  # no place in a list
    return f"option --{'.'.join(parts).replace('_', '-')}: {_why(first)}"


def _why(error: "ErrorDetails") -> str:
    if error["type"] == "missing":
        return "must be said"  # its input is all the rest
    told = error["msg"].removeprefix("Value error, ")
    return f"{told[:1].lower()}{told[1:]}, not {error['input']!r}"


def nearest(name: str, known: Sequence[str]) -> str:
    """What may have been meant, as a sentence behind the one that says what is wrong."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}"


def option_names(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """All options as they are typed: ``optim.lr``."""
    names = []
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            names += option_names(inner, f"{prefix}{name}.")
        else:
            names.append(f"{prefix}{name}")
    return names


def read_toml(path: Path) -> dict[str, Any]:
    """Settings from a TOML file, with the names of the command line."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as problem:
        raise ConfigError(f"there is no file {path}") from problem
    except IsADirectoryError as problem:
        raise ConfigError(f"{path} is a folder: name the TOML file") from problem
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror or problem}") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is no TOML file: {problem}") from problem
