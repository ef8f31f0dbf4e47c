"""Flags that say where many runs are executed, the same for compare, sweep and tune."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field

from nscl.cli.integer_option import Integer
from nscl.errors import NsclError

if TYPE_CHECKING:
    from nscl.engines.execute import Engine

THREADS_HELP = {"threads": "Of each run; the cores divided by the jobs if not given."}


class EngineFlags(BaseModel):
    """Where runs are executed, and how many at once."""

    model_config = ConfigDict(frozen=True)

    jobs: Integer | None = Field(
        None,
        description="How many runs go on at once, the cores divided among them; here 1, on a "
        "cluster all.",
    )
    engine: Literal["local", "ray"] = Field(
        "local", description="Processes of this machine, or a Ray cluster."
    )
    address: str | None = Field(None, description="Of the Ray cluster, such as ray://head:10001.")

    @property
    def is_local(self) -> bool:
        """Whether runs are executed on this machine."""
        return self.engine == "local"

    @property
    def side_by_side(self) -> int | None:
        """How many runs share the cores of this machine; on a cluster none does."""
        return self.jobs or 1 if self.is_local else None

    def open(self) -> "Engine":
        """The engine that runs go to: one run at a time here, all at once on a cluster."""
        if self.jobs is not None and self.jobs < 1:
            raise NsclError(f"--jobs {self.jobs}: at least one run must go on at a time")
        if self.is_local and self.address is not None:
            raise NsclError("--address is the address of a Ray cluster: add --engine ray")
        if self.is_local:
            from nscl.engines.workers.local import Local

            return Local(jobs=self.jobs or 1)
        from nscl.engines.workers.ray_engine import RayEngine

        return RayEngine(address=self.address, jobs=self.jobs)


#: The parameter of a command; its default is ``HERE``.
Where = Annotated[EngineFlags, Parameter(name="*")]
HERE = EngineFlags()
