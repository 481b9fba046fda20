"""Pictures of figures, PNG and SVG, that are read at half a page's width.

One panel each, few words and large ones, the legend below the axes, the Okabe–Ito colours, which readers with any kind
of colour vision tell apart, and another marker for every line. Bars lie, so that their names can be read.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import matplotlib as mpl
import numpy as np

from coterie_lab.experiment import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

mpl.use("Agg")
from matplotlib import pyplot as plt

Curves: TypeAlias = dict[str, dict[float, list[float]]]
"""Series → x → the values of all seeds."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "osD^vPX*"
GREEK = str.maketrans({"γ": "gamma", "ε": "epsilon", "σ": "sigma"})
PRINTED = "*P1"
"""Markers of numbers that a paper prints, all of them black."""
WIDTH, HEIGHT, DOTS = 4.8, 3.4, 150
"""Inches, and dots an inch of the PNG."""
STYLE: dict[Any, Any] = {
    "font.size": 11.0,
    "axes.labelsize": 11.0,
    "legend.fontsize": 10.0,
    "svg.hashsalt": "coterie",
    "svg.fonttype": "none",
}


def draw(curves: Curves, plot: Plot, experiment: str, folder: Path) -> str:
    """Writes the picture twice and returns its name without ending."""
    spelt = plot.figure.translate(GREEK)
    name = "-".join([experiment, *"".join(c if c.isalnum() and c.isascii() else " " for c in spelt).split()])
    with mpl.rc_context(STYLE):
        bars = len(curves) * len(_groups(curves, plot))
        height = (
            max(HEIGHT, 0.9 + 0.22 * bars + 0.12 * len(curves)) if plot.x == "" else HEIGHT + 0.24 * (len(curves) // 2)
        )
        figure, axes = plt.subplots(figsize=(WIDTH, height), layout="constrained")
        if plot.x == "":
            _bars(axes, curves, plot)
        else:
            _lines(axes, curves, plot)
        if plot.x != "" or plot.groups:
            figure.legend(loc="outside lower center", ncols=2, frameon=False)
        axes.grid(alpha=0.25, axis="x" if plot.x == "" else "both")
        axes.spines[["top", "right"]].set_visible(False)
        for ending in ("png", "svg"):
            target = folder / f"{name}.{ending}"
            figure.savefig(target, dpi=DOTS, metadata={"Date": None} if ending == "svg" else None)
        plt.close(figure)
    return name


def _lines(axes: Axes, curves: Curves, plot: Plot) -> None:
    for k, (series, values) in enumerate(curves.items()):
        places, colour = sorted(values), COLOURS[k % len(COLOURS)]
        means = np.array([np.mean(values[x]) for x in places])
        spread = np.array([np.std(values[x]) for x in places])
        often = max(1, len(places) // 8)
        axes.plot(
            places, means, marker=MARKERS[k % len(MARKERS)], markersize=5, markevery=often, color=colour, label=series
        )
        axes.fill_between(places, means - spread, means + spread, color=colour, alpha=0.15, linewidth=0)
    for (name, points), marker in zip(plot.paper.items(), cycle(PRINTED)):
        axes.plot(*zip(*points, strict=True), marker=marker, markersize=11, color="black", linestyle="none", label=name)
    axes.set(xlabel=plot.x, ylabel=plot.y)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")


def _bars(axes: Axes, curves: Curves, plot: Plot) -> None:
    groups = _groups(curves, plot)
    thick = 0.8 / len(groups)
    for place, (k, group) in enumerate(groups.items()):
        values = [item.get(float(k), [float("nan")]) for item in curves.values()]
        means, spread = [float(np.mean(value)) for value in values], [float(np.std(value)) for value in values]
        places = np.arange(len(curves)) + (place - (len(groups) - 1) / 2) * thick
        colour = COLOURS[k % len(COLOURS)]
        axes.barh(places, means, thick * 0.92, xerr=spread, capsize=2, color=colour, label=group)
    axes.set_yticks(range(len(curves)), list(curves))
    axes.invert_yaxis()
    axes.set_xlabel(plot.y)
    if plot.log_y:
        axes.set_xscale("log")


def _groups(curves: Curves, plot: Plot) -> dict[int, str]:
    """The groups of bars of which something was measured, by their number, which chooses their colour in every mode."""
    measured = {x for values in curves.values() for x in values}
    return {k: group for k, group in enumerate(plot.groups) if float(k) in measured} or {0: ""}
