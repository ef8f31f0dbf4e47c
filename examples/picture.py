"""The picture and the table of the README: both tasks' accuracy while the second one is learned.

python examples/picture.py [folder]      two_tasks.py over seeds 0 to 4, about 2 minutes
"""

import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import nscl
from nscl.data import open_stream
from nscl.models import MLP, MultiHead
from two_tasks import NAMES, accuracy, train

SEEDS, EPOCHS = range(5), 30
# Okabe and Ito's colours for the colour-blind; dashes and lightness tell them apart in grey too.
LOOKS = (("#D55E00", "--"), ("#56B4E9", "-."), ("#00344D", "-"), ("#009E73", ":"))
STYLES: dict[str, dict[str, Any]] = {
    name: {"color": color, "linestyle": line}
    for name, (color, line) in zip(NAMES, LOOKS, strict=True)
}
Curves = list[list[float]]  # one per seed


def watch(name: str, seed: int) -> tuple[list[float], list[float]]:
    """Accuracy on both tasks after each epoch of the second one."""
    first, second = open_stream("split-digits-5", tasks=2)
    torch.manual_seed(seed)
    model = MultiHead(MLP(64, width=128), [5, 5])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    memory = nscl.Memory.adam_nscl(model) if "NSCL" in name else nscl.Memory(model)
    protection = memory.protect(optimizer)
    train(model, optimizer, first)
    memory.remember([first.train.images / 255], forward=lambda model, x: model(x, task=0))
    if name == "Adam":
        protection.remove()
    old, new = [accuracy(model, first)], [accuracy(model, second)]
    for _ in range(EPOCHS):
        train(model, optimizer, second, epochs=1, recall=memory if "recall" in name else None)
        memory.flush()
        old.append(accuracy(model, first))
        new.append(accuracy(model, second))
    return old, new


def draw(axes: Axes, name: str, curves: Curves) -> None:
    """The mean over seeds as a line, the least and the greatest as a band."""
    epochs, columns = range(EPOCHS + 1), list(zip(*curves, strict=True))
    axes.plot(epochs, [mean(c) for c in columns], label=name, linewidth=2, **STYLES[name])
    band = [min(c) for c in columns], [max(c) for c in columns]
    axes.fill_between(epochs, *band, alpha=0.18, linewidth=0, color=STYLES[name]["color"])


def row(name: str, old: Curves, new: Curves) -> str:
    """One line of the README's table: mean and standard deviation over seeds."""
    columns = (
        [curve[0] for curve in old],
        [curve[-1] for curve in old],
        [curve[0] - curve[-1] for curve in old],
        [curve[-1] for curve in new],
        [(before[-1] + now[-1]) / 2 for before, now in zip(old, new, strict=True)],
    )
    cells = [f"{mean(column):.1f} ± {stdev(column):.1f}" for column in columns]
    return " | ".join((f"| {name}", *cells)) + " |"


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    mpl.rcParams.update({"font.size": 11, "svg.hashsalt": "nscl", "svg.fonttype": "path"})
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    for name in NAMES:
        old, new = map(list, zip(*(watch(name, seed) for seed in SEEDS), strict=True))
        draw(left, name, old)
        draw(right, name, new)
        print(row(name, old, new), flush=True)
    left.set_title("digits 0–4, learned before", loc="left")
    right.set_title("digits 5–9, being learned", loc="left")
    for axes in (left, right):
        axes.set(xlabel="epochs on digits 5–9", ylim=(60, 101), xlim=(0, EPOCHS))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.5, alpha=0.5)
    left.set_ylabel("test accuracy in %")
    left.text(EPOCHS, 97.6, "all memories", ha="right", va="top")
    left.text(EPOCHS, 76.5, "Adam alone", ha="right", va="top")
    right.legend(frameon=False, loc="lower right")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "two_tasks.svg", metadata={"Date": None})
    figure.savefig(folder / "two_tasks.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
