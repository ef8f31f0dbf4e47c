"""The configuration of a run: every setting with its type, default and help text. No torch here.

The command line, TOML files and Python all make the same ``RunConfig``; the texts below the fields
are what ``--help`` shows. What describes the experiment is hashed into the run's name. Where it
runs (folders, device, threads) and its label are recorded but do not change the name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from nscl.results import recorded_preset, run_name
from nscl.training.config.errors import ConfigError as ConfigError
from nscl.training.config.short_names import with_full_names
from nscl.training.tracking.tracker import TrackName

if TYPE_CHECKING:
    from nscl.methods.base import Method, Options

PresetName = Literal["paper", "official", "half", "cpu", "cpu-1", "cpu-2", "quick"]


class Part(BaseModel):
    """A frozen part of the configuration that refuses unknown names."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class Optim(Part):
    """How weights are learned."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    """The optimizer, fresh for every task."""
    lr: float = Field(1e-3, gt=0)
    """Rate of the backbone in the first task."""
    later_lr: float | None = Field(None, gt=0)
    """Rate of the backbone in all other tasks; as lr if not given."""
    head_lr: float | None = Field(None, gt=0)
    """Rate of the heads; as lr if not given."""
    norm_lr: float | None = Field(None, gt=0)
    """Rate of normalisation layers; as lr if not given, in later tasks too."""
    weight_decay: float = Field(0.0, ge=0)
    """Of everything but heads: in the gradient (adam, sgd) or decoupled (adamw)."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Of sgd."""
    epochs: int = Field(5, ge=1)
    """Per task."""
    first_epochs: int | None = Field(None, ge=1)
    """Of the first task, and of tasks that begin with random weights; as epochs if not given."""
    batch_size: int = Field(32, ge=1)
    """Images or texts per step."""
    milestones: tuple[int, ...] = ()
    """Of epochs, those at which all rates are multiplied by gamma; scaled where a task has more or
    fewer of them."""
    gamma: float = Field(0.5, gt=0)
    """What rates are multiplied by at milestones."""

    def backbone_lr(self, task: int) -> float:
        """Rate of weights that all tasks share."""
        return self.lr if task == 0 or self.later_lr is None else self.later_lr

    def epochs_of(self, task: int) -> int:
        """Epochs of a task."""
        return self.epochs if task or self.first_epochs is None else self.first_epochs

    def epochs_before(self, place: float) -> float:
        """Epochs up to a place in the stream: 1.5 is the middle of the second task."""
        return self.epochs_of(0) * min(place, 1.0) + self.epochs * max(0.0, place - 1.0)

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
    """Train on the first tasks only: how many."""
    size: int | None = Field(None, ge=4)
    """Pixels to which pictures are resized in memory; see model.size for the network's."""
    holdout: float | None = Field(None, gt=0, lt=1)
    """Share of the training images or texts of every class that are not trained on and tested in
    place of the test images: for choosing settings."""
    scenario: Literal["task", "domain", "class"] | None = None
    """A head per task (task), one for all (domain), or one that grows over all classes seen, the
    task of a test sample not known (class); as the benchmark is meant if not given."""
    augment: Literal["default", "none", "crop-flip"] = "default"
    """Of training images; default is what the benchmark is trained with."""
    max_bytes: int | None = Field(None, ge=0)
    """Pictures that need more memory than this are decoded while training."""
    tokenizer: str | None = Field(None, min_length=1)
    """Of texts: words, words:N, minilm or hf:PATH; as the model's own if not given."""
    length: int | None = Field(None, ge=2)
    """Most tokens of a text; 32 if not given."""
    digest: str | None = None
    """Of a stream that was handed over in Python; set by nscl.run."""


class Model(Part):
    """Which network."""

    name: str = "resnet18"
    """See nscl list models; or package.module:factory, a model of your own. Short: --model NAME."""
    width: int | None = Field(None, ge=1)
    """Channels of its first stage, or units of a layer."""
    stem_stride: int | None = Field(None, ge=1)
    """Of resnet18: stride of the first convolution; 1 if not given."""
    size: int | None = Field(None, ge=4)
    """Pixels to which images are resized on their way into the network."""
    weights: str | None = Field(None, min_length=1)
    """Of mobilenetv2: a file of torchvision's, looked for among the data too."""
    memory_format: Literal["contiguous", "channels_last"] = "contiguous"
    """Of images and weights: a matter of speed."""


def _known_device(name: str) -> str:
    if name.split(":")[0] not in ("auto", "cpu", "cuda", "mps"):
        raise ValueError("device must be auto, cpu, cuda (or cuda:N) or mps")
    return name


def _without_value(part: Part, *names: str) -> set[str]:
    return {name for name in names if getattr(part, name) is None}


@dataclass(frozen=True)
class ResolvedMethod:
    """A method's class and its validated options."""

    name: str
    kind: "type[Method]"
    options: "Options"


class RunConfig(Part):
    """Everything about one run."""

    benchmark: str
    """See nscl list benchmarks; or folder:PATH, your own pictures in class folders; or text:PATH,
    your own texts in a table."""
    method: str = "adam-nscl"
    """See nscl list methods; or package.module:Class, a method of your own. Without: adam-nscl."""
    preset: PresetName = "quick"
    """Values of all settings that are not given; cpu is the newest version of it, see nscl list
    presets. Without: paper for the paper's three benchmarks, quick elsewhere."""
    seed: int = Field(0, ge=0)
    """Of everything random. Without: 0."""
    options: dict[str, Any] = {}
    """Of the method: type --method.NAME instead."""
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
    """Log the training loss of this many first tasks after every epoch. It reads old data (up to
    512 images of each), so it is for figures of forgetting only."""
    # Where and how it runs, and what reports call it: not part of the run's name.
    device: Annotated[str, AfterValidator(_known_device)] = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    threads: int | None = Field(None, ge=1)
    """Of torch on the processor."""
    data_dir: Path | None = None
    """Where data are looked for first; then $NSCL_DATA, then the cache."""
    out: Path = Path("runs")
    """The folder of run folders. Without: runs."""
    label: str | None = Field(None, min_length=1)
    """What reports call it; its method and unusual options if not given."""
    track: TrackName = "none"
    """Write losses, accuracies and rates for TensorBoard or W&B too; needs nscl[tensorboard] or
    nscl[wandb]."""

    _resolved: ResolvedMethod | None = PrivateAttr(None)

    if not TYPE_CHECKING:  # type checkers know the fields' own types

        def __init__(self, **values: Any) -> None:
            from nscl.training.config.validation import wrong_option  # needs this module

            try:
                super().__init__(**values)
            except ValidationError as problem:
                raise ConfigError(wrong_option(problem, type(self))) from problem

        # As pydantic marks its own: model_validate does not go this way.
        __init__.__pydantic_base_init__ = True

    @model_validator(mode="before")
    @classmethod
    def _full_names(cls, values: Any) -> Any:
        return with_full_names(values) if isinstance(values, Mapping) else values

    @property
    def resolved(self) -> ResolvedMethod | None:
        """The method's class and typed options, as ``build_config`` leaves them here.

        None where there are none yet, or where ``method`` or ``options`` have changed since.
        """
        found = self._resolved
        if found is None or found.name != self.method:
            return None
        return found if found.options.model_dump(mode="json") == self.options else None

    def __eq__(self, other: object) -> bool:
        """Compare settings only: ``resolved`` follows from them."""
        return isinstance(other, RunConfig) and self.__dict__ == other.__dict__

    @property
    def run_name(self) -> str:
        """The name of the run's folder: ``<benchmark>-<method>-<seed>-<hash8>``."""
        return run_name(
            benchmark=self.benchmark, method=self.method, seed=self.seed, config=self.identity()
        )

    def identity(self) -> dict[str, Any]:
        """What describes the experiment, ready for JSON; its hash names the run."""
        elsewhere = {"device", "threads", "data_dir", "out", "label", "track"}
        # Absent unless asked for: runs made before it could be asked for keep their names.
        unasked = set() if self.track_old_losses else {"track_old_losses"}
        found = self.model_dump(
            mode="json",
            exclude={
                **dict.fromkeys(elsewhere | unasked, True),
                "optim": _without_value(self.optim, "first_epochs"),
                "data": _without_value(self.data, "tokenizer", "length", "holdout"),
                "model": _without_value(self.model, "size", "weights", "stem_stride"),
            },
        )
        return found | {"preset": recorded_preset(self.preset)}

    def place(self) -> dict[str, Any]:
        """Where and how it runs, without folders of one machine; label and tracker, if any."""
        label = {} if self.label is None else {"label": self.label}
        track = {} if self.track == "none" else {"track": self.track}
        return {"device": self.device, "threads": self.threads, **label, **track}
