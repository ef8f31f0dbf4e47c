"""The list of methods, without importing torch; unknown names suggest the nearest."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nscl.errors import NsclError
from nscl.messages import did_you_mean

if TYPE_CHECKING:
    from nscl.methods.base import Method

Stores = Literal["nothing", "parameters", "data"]


@dataclass(frozen=True)
class MethodInfo:
    """A method as it is listed: what it keeps of old tasks, what it needs, its paper."""

    name: str
    target: str  # module:Class
    description: str
    stores: Stores
    paper: str
    needs: str = "labels"
    scenarios: tuple[str, ...] = ("task", "domain", "class")  # equal to the class's own


_NO_CLASS = ("task", "domain")
_PAPERS = {
    "nscl": "Wang et al., CVPR 2021",
    "owm": "Zeng et al., Nature Machine Intelligence 2019",
    "gpm": "Saha et al., ICLR 2021",
    "sgp": "Saha and Roy, AAAI 2023",
    "adns": "Kong et al., ECCV 2022",
    "connector": "Lin et al., CVPR 2022",
    "lwf": "Li and Hoiem, TPAMI 2017",
    "muc": "Liu et al., ECCV 2020",
    "gd": "Lee et al., ICCV 2019",
}

METHODS: dict[str, MethodInfo] = {
    info.name: info
    for info in (
        MethodInfo(
            "finetune",
            "nscl.methods.baselines.finetune:Finetune",
            "train on one task after the other, protect nothing (lower bound)",
            "nothing",
            "-",
        ),
        MethodInfo(
            "joint",
            "nscl.methods.baselines.joint:Joint",
            "train on all tasks so far together (upper bound)",
            "data",
            "-",
        ),
        MethodInfo(
            "independent",
            "nscl.methods.baselines.independent:Independent",
            "one network per task: no forgetting, no transfer",
            "parameters",
            "-",
            scenarios=_NO_CLASS,
        ),
        MethodInfo(
            "frozen",
            "nscl.methods.baselines.frozen:Frozen",
            "the backbone stands still after the first task; only heads are trained",
            "nothing",
            "-",
        ),
        MethodInfo(
            "nscl",
            "nscl.methods.projection.nscl:NSCL",
            "nscl.Memory with strength 1 in place of 5, old answers distilled from its recall, "
            "and new heads warmed up first",
            "parameters",
            "-",
        ),
        MethodInfo(
            "adam-nscl",
            "nscl.methods.projection.adam_nscl:AdamNSCL",
            "updates projected into the null space of old features' covariance; norms by EWC",
            "parameters",
            _PAPERS["nscl"],
        ),
        MethodInfo(
            "gem",
            "nscl.methods.replay.gem:GEM",
            "no step may raise any old task's loss on kept images; steps cost more with every task",
            "data",
            "Lopez-Paz & Ranzato, NIPS 2017",
        ),
        MethodInfo(
            "a-gem",
            "nscl.methods.replay.a_gem:AGEM",
            "no step may raise the mean loss on a batch of kept images",
            "data",
            "Chaudhry et al., ICLR 2019",
        ),
        MethodInfo(
            "mega",
            "nscl.methods.replay.mega:MEGA",
            "current and memory gradient mixed by their losses (variants mega-i, mega-ii)",
            "data",
            "Guo et al., NeurIPS 2020",
        ),
        MethodInfo(
            "owm",
            "nscl.methods.projection.owm:OWM",
            "updates softly orthogonal to old inputs, per task or recursively per batch",
            "parameters",
            _PAPERS["owm"],
        ),
        MethodInfo(
            "gpm",
            "nscl.methods.projection.gpm:GPM",
            "updates orthogonal to a growing basis of old inputs of a few samples",
            "parameters",
            _PAPERS["gpm"],
        ),
        MethodInfo(
            "sgp",
            "nscl.methods.projection.sgp:SGP",
            "gpm with an importance per direction: held directions are scaled, not forbidden",
            "parameters",
            _PAPERS["sgp"],
        ),
        MethodInfo(
            "adns",
            "nscl.methods.projection.adns:AdNS",
            "adam-nscl with null spaces combined over tasks and a teacher for each new task",
            "parameters",
            _PAPERS["adns"],
            scenarios=_NO_CLASS,
        ),
        MethodInfo(
            "connector",
            "nscl.methods.projection.connector:Connector",
            "the weighted mean of an adam-nscl network and a free one",
            "parameters",
            _PAPERS["connector"],
            scenarios=_NO_CLASS,
        ),
        MethodInfo(
            "ewc",
            "nscl.methods.regularization.ewc:EWC",
            "parameters held by their Fisher information on old tasks",
            "parameters",
            "Kirkpatrick et al., PNAS 2017",
        ),
        MethodInfo(
            "mas",
            "nscl.methods.regularization.mas:MAS",
            "parameters held by how much the outputs depend on them; importances need no labels",
            "parameters",
            "Aljundi et al., ECCV 2018",
        ),
        MethodInfo(
            "si",
            "nscl.methods.regularization.si:SI",
            "parameters held by their share in the fall of old tasks' losses",
            "parameters",
            "Zenke et al., ICML 2017",
        ),
        MethodInfo(
            "lwf",
            "nscl.methods.distillation.lwf:LwF",
            "old heads distilled from the previous network on new images; new head warmed up",
            "parameters",
            _PAPERS["lwf"],
            scenarios=("task", "class"),
        ),
        MethodInfo(
            "muc-mas",
            "nscl.methods.regularization.muc_mas:MUCMAS",
            "MAS importances of several classifiers made to disagree on unlabelled images",
            "parameters",
            _PAPERS["muc"],
            "labels, external images",
            scenarios=_NO_CLASS,
        ),
        MethodInfo(
            "gd-wild",
            "nscl.methods.distillation.gd_wild.method:GDWild",
            "distillation from the previous network, a new teacher and both, on images of the wild",
            "data",
            _PAPERS["gd"],
            "labels, external images",
            scenarios=("task",),
        ),
        MethodInfo(
            "instaparam",
            "nscl.methods.instaparam.method:InstAParam",
            "a controller per task chooses, for every image, crops of shared super kernels",
            "parameters",
            "Chen et al., NeurIPS 2020",
            "labels, convnet or resnet18",
            scenarios=_NO_CLASS,
        ),
    )
}


def method_info(name: str) -> MethodInfo:
    """Look a method up by its name, or describe ``package.module:Class``."""
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        own = "a method of your own"
        return MethodInfo(name, name, own, "parameters", "-", scenarios=_NO_CLASS)
    if "." in name:
        module, _, attribute = name.rpartition(".")
        raise NsclError(f"there is no method {name!r}: write your own as '{module}:{attribute}'")
    hint = did_you_mean(name, METHODS)
    raise NsclError(f"there is no method {name!r}{hint}; known: {', '.join(METHODS)}")


def stores_of(name: str) -> Stores:
    """What a method keeps of old tasks; a user's own class has it as an attribute."""
    return METHODS[name].stores if name in METHODS else load_method(name).stores


def load_method(name: str) -> "type[Method]":
    """Import a method's class."""
    from nscl.methods.loading import import_method

    return import_method(method_info(name).target)
