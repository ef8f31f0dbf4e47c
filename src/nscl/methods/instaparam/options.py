"""Options of InstAParam: the numbers of the authors' release, regime and sizes."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, field_validator

from nscl.methods.base import Options


class InstAParamOptions(Options):
    """When it learns, how large it is, and what the controller is rewarded for."""

    # online, as published: one pass, batches of 10, ten steps on each; offline: as configured
    regime: Literal["online", "offline"] = "offline"
    pretrain_epochs: NonNegativeInt = 0  # first task, batches of 200: all branches, then some
    kernels: tuple[int, ...] = (7, 5, 3, 1)  # a branch each
    groups: PositiveInt = 4  # of the super kernels' channels
    controller_lr: float = Field(1e-3, gt=0)  # of its own Adam, constant
    controller_width: int = Field(16, ge=2, multiple_of=2)  # of its first stage
    controller_side: PositiveInt = 32  # larger images are halved for the controller
    mu: float = Field(0.5, ge=0, le=1)  # a branch of at least this probability is active
    alpha: float = Field(0.8, ge=0.5, le=1)  # trials keep at least 1 - alpha of either choice
    beta: NonNegativeFloat = 0.8  # of the entropy
    gain: float = 30.0  # reward of a right answer, times the log of inactive branches
    miss: float = 0.0  # reward of a wrong answer
    exponent: NonNegativeFloat = 1.0  # of that log
    reuse: float = Field(0.1, ge=0, lt=1)  # how much less probable branches of old tasks become
    reuse_slope: float = 10.0  # how sharply often used branches differ from others
    reuse_shift: float = 0.5  # the share of the most used branch's √count where half is taken
    ewc: NonNegativeFloat = 0.0  # strength that holds the shared weights; off in the release
    # how the controller learns: from rewards of trials, or by a gradient through relaxed ones
    estimator: Literal["reinforce", "gumbel"] = "reinforce"

    @field_validator("kernels")
    @classmethod
    def _odd(cls, kernels: tuple[int, ...]) -> tuple[int, ...]:
        odd = all(size > 0 and size % 2 for size in kernels)
        if not kernels or not odd or len(set(kernels)) < len(kernels):
            raise ValueError("kernels must be different odd sizes, for example 7, 5, 3, 1")
        return kernels
