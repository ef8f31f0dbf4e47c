"""Drawing a planned figure: its places are found once, then it is saved in each format."""

import io
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.charts.curves import acc_after_task, step_time, task_accuracy
from nscl.reporting.figures.charts.losses import old_losses, training_loss
from nscl.reporting.figures.charts.matrices import accuracy_matrix, layer_map
from nscl.reporting.figures.charts.plane import acc_bwt
from nscl.reporting.figures.charts.spectrum import singular_values
from nscl.reporting.figures.charts.sweeps import sweep
from nscl.reporting.figures.plans import Plan
from nscl.reporting.figures.style import laid_out, styled
from nscl.reporting.plot_data.missing import LeftOut

_FUNCTIONS: dict[str, Callable[..., Figure]] = {
    "accuracy_matrix": accuracy_matrix,
    "acc_after_task": acc_after_task,
    "task_accuracy": task_accuracy,
    "acc_bwt": acc_bwt,
    "training_loss": training_loss,
    "step_time": step_time,
    "old_losses": old_losses,
    "sweep": sweep,
    "singular_values": singular_values,
    "layer_map": layer_map,
}


def draw(plan: Plan) -> Figure:
    """The figure of a plan; call and save within ``styled``."""
    return _FUNCTIONS[plan.function](*plan.arguments)


def render(plan: Plan, kinds: Sequence[str]) -> dict[str, bytes] | LeftOut:
    """The files of a figure by format (``svg``, ``png``), or why it cannot be drawn."""
    with styled():
        try:
            figure = laid_out(draw(plan))
        except NoFigureDataError as problem:
            return LeftOut(plan.name, str(problem))
        return {kind: _SAVED[kind](figure) for kind in kinds}


# ``Figure.savefig`` goes through the whole figure once more before it draws: nothing is to be
# learned from that here, and it takes a third of the time.


def _svg(figure: Figure) -> bytes:
    buffer, dpi = io.BytesIO(), figure.dpi
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(buffer, metadata={"Date": None})  # the same runs make the same bytes
    figure.dpi = dpi  # an SVG's is 72
    return buffer.getvalue()


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(buffer, pil_kwargs={"compress_level": 1})  # a tenth larger, in half the time
    return buffer.getvalue()


_SAVED: dict[str, Callable[[Figure], bytes]] = {"svg": _svg, "png": _png}
