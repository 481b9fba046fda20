"""Plots of the market's figures, saved as PNG beside the result page."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

from services.pricing.domain.baselines import Series
from services.pricing.domain.influence import Vector

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

SHOWN = ("market", "agnostic", "fixed", "proxy", "random")


def rounds(runs: dict[str, Series], names: dict[str, str], out: Path) -> None:
    """Figures 3 and 4: cost and welfare round by round."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    for name, series in runs.items():
        at = range(1, series.costs.size + 1)
        axes[0].plot(at, series.costs, label=names[name])
        axes[1].plot(at, series.welfare, label=names[name])
    for axis, title in zip(axes, ("server cost", "social welfare"), strict=True):
        axis.set(xlabel="round t", title=f"{title} (N = 20)")
    axes[0].set_yscale("log")
    axes[0].legend(fontsize=7)
    _save(figure, out / "market-rounds.png")


def sizes(table: dict[int, dict[str, Vector]], names: dict[str, str], out: Path) -> None:
    """Figures 7 and 8: cost and welfare by number of devices."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    for k, (axis, title) in enumerate(zip(axes, ("server cost", "social welfare"), strict=True)):
        for place, name in enumerate(SHOWN):
            heights = [row[name][k] for row in table.values()]
            axis.bar(np.arange(len(table)) + 0.16 * (place - 2), heights, 0.15, label=names[name])
        axis.set(title=title, xlabel="devices N")
        axis.set_xticks(range(len(table)), [str(n) for n in table])
    axes[0].legend(fontsize=7)
    _save(figure, out / "market-sizes.png")


def sweeps(
    alphas: list[float], by_alpha: list[tuple[float, float]], by_hops: list[tuple[float, float]], out: Path
) -> None:
    """Figures 5, 6, 9 and 10: the market's cost and welfare against α and K."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    for axis, xs, points, label in (
        (axes[0], alphas, by_alpha, "risk weight α"),
        (axes[1], [float(k) for k in range(1, len(by_hops) + 1)], by_hops, "hops K"),
    ):
        axis.plot(xs, [cost for cost, _ in points], "o-", color="tab:red", label="server cost")
        other = axis.twinx()
        other.plot(xs, [worth for _, worth in points], "s--", color="tab:blue", label="welfare")
        axis.set(xlabel=label, ylabel="server cost")
        other.set_ylabel("social welfare")
        axis.legend(loc="center left", fontsize=7)
        other.legend(loc="center right", fontsize=7)
    _save(figure, out / "market-sweeps.png")


def convergence(errors: dict[str, list[float]], out: Path) -> None:
    """Figure 2: Algorithm 1's error per step."""
    figure, axis = plt.subplots(figsize=(6, 3.6))
    for name, error in errors.items():
        axis.semilogy(range(1, len(error) + 1), np.maximum(error, 1e-17), label=name)
    axis.axhline(1e-3, color="grey", lw=0.8)
    axis.set(xlabel="step", ylabel="max |R' − R| / N")
    axis.legend(fontsize=7)
    _save(figure, out / "market-convergence.png")


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
