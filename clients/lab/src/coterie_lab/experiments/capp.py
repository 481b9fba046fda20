"""[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection: Figures 1 to 3.

The plans are the pricing service's own (`services.pricing.domain.collection`); networks have the vertices, edges and
largest degree of Table I, drawn by a generator from the seed, so that every seed is another network.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from coterie_lab.claims import AtMost, Monotone, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.readings import Reading
from coterie_lab.survey import (
    BUDGETS,
    MEANS,
    SHAPES,
    SPREADS,
    Point,
    draw_care,
    draw_weights,
    find_subgraph,
    generate,
    load_facebook,
    measure,
    negative_variances,
    saturation,
)
from services.pricing.domain.influence import Matrix

NETWORKS = tuple(SHAPES)
LOW_BUDGETS = (50.0, 100.0, 200.0)
QUICK_CELLS: tuple[Cell, ...] = tuple({"network": name} for name in NETWORKS)


@cache
def graph(name: str, seed: int, data: Path | None) -> np.typing.NDArray[np.bool_]:
    """A network of Table I's shape: an induced subgraph of the ego network, or generated where that is not there."""
    facebook, generator = load_facebook(data), np.random.default_rng(seed)
    shape = SHAPES[name]
    return generate(shape, generator) if facebook is None else find_subgraph(facebook, shape, generator)


def drawn(name: str, seed: int, data: Path | None, mean: float, spread: float) -> tuple[Matrix, Matrix]:
    """Correlation and care on the network, from the same seed for every x."""
    generator = np.random.default_rng([seed, 1])
    on = graph(name, seed, data)
    return draw_weights(on, mean, generator), draw_care(on, spread, generator)


def by_budget(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 1: accuracy and loss over the platform's budget, and the budget from which no user hides."""
    name = str(cell["network"])
    weights, care = drawn(name, seed, data, 2.0, 0.2)
    points = {b: measure(weights, care, budget=b, constant=10.0, error_squared=200.0) for b in BUDGETS}
    asked = [negative_variances(weights, care, budget) / len(weights) for budget in LOW_BUDGETS]
    slope = (points[BUDGETS[1]].loss - points[BUDGETS[0]].loss) / (BUDGETS[1] - BUDGETS[0])
    return [
        *_curves(name, {float(b): point for b, point in points.items()}),
        Reading("saturation", name, float("nan"), saturation(weights, care)),
        Reading("slope of the loss", name, float("nan"), slope),
        *(Reading("asked for the impossible", name, b, share) for b, share in zip(LOW_BUDGETS, asked, strict=True)),
    ]


def by_correlation(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 2: the same over the mean correlation, B = 5, C = 6."""
    name = str(cell["network"])
    points = {
        mean: measure(*drawn(name, seed, data, mean, 0.2), budget=5.0, constant=6.0, error_squared=400.0)
        for mean in MEANS
    }
    return _curves(name, points)


def by_care(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 3: the same over how much users care for each other."""
    name = str(cell["network"])
    points = {
        spread: measure(*drawn(name, seed, data, 2.0, spread), budget=50.0, constant=10.0, error_squared=2.2e4)
        for spread in SPREADS
    }
    return _curves(name, points)


def _curves(name: str, points: dict[float, Point]) -> list[Reading]:
    return [
        reading
        for x, point in points.items()
        for reading in (Reading("accuracy", name, x, point.accuracy), Reading("loss", name, x, point.loss))
    ]


def _plots(x: str) -> tuple[Plot, ...]:
    return (Plot("accuracy", x, "accuracy rate"), Plot("loss", x, "mean privacy loss"))


SETTING = (
    "Networks S1 to S4 with the vertices, edges and largest degree of Table I; w ~ N(μ_w, 0.02²) above 0, "
    "s ~ N(0, σ_s²) within [0, 1] on edges and for oneself; q between 0.01 and e^C, the paper's variance."
)
EXPERIMENTS = (
    Experiment(
        name="capp-budget",
        paper="capp",
        title="Accuracy and privacy loss against the budget",
        shows="Figure 1",
        setting=f"{SETTING} C = 10, ε² = 200, μ_w = 2, σ_s = 0.2, B from 100 to 1,500.",
        trial=by_budget,
        quick=Effort(QUICK_CELLS, 5, 1.0),
        full=Effort(QUICK_CELLS, 30, 1.0),
        claims=(
            Monotone("accuracy rises with the budget (Fig 1a)", "accuracy", NETWORKS, "rises"),
            Ordered("smaller networks saturate first: S1, S2, S3, S4 (Fig 1a)", "saturation", NETWORKS),
            Monotone("the mean privacy loss rises with the budget (Fig 1b)", "loss", NETWORKS, "rises"),
            Ordered("the loss rises steepest for S4 (Fig 1b)", "slope of the loss", ("S1", "S4")),
            *(
                AtMost(f"P2 asks no user for a negative variance ({name})", "asked for the impossible", name, 0.0)
                for name in NETWORKS
            ),
        ),
        plots=(
            *_plots("budget B"),
            Plot("asked for the impossible", "budget B", "share of users"),
        ),
        uses=("Facebook ego network",),
        deviations=(
            "Care is drawn on edges only: with care for all users S3 and S4 do not saturate within B = 1,500.",
        ),
        reading="The loss rises with the budget at a slope of about 1/Σs, so it is steepest for the smallest network. "
        "The paper's P2 keeps all users inside at one common base, which some users' costs exceed. Table I's average "
        "degrees of S2 and S4 should be 15.47 and 22.84 (printed 15.45 and 22.48).",
    ),
    Experiment(
        name="capp-correlation",
        paper="capp",
        title="Accuracy and privacy loss against correlation",
        shows="Figure 2",
        setting=f"{SETTING} B = 5, C = 6, σ_s = 0.2, ε² = 400.",
        trial=by_correlation,
        quick=Effort(QUICK_CELLS, 5, 1.0),
        full=Effort(QUICK_CELLS, 30, 1.0),
        claims=(
            Monotone("accuracy falls as users are more correlated (Fig 2a)", "accuracy", NETWORKS, "falls"),
            Monotone("the privacy loss rises with correlation (Fig 2b)", "loss", NETWORKS, "rises"),
        ),
        plots=_plots("mean correlation μ_w"),
        uses=("Facebook ego network",),
        deviations=("ε² = 400: with the printed 40 the clipped accuracy is 0 everywhere.",),
        reading="The loss hardly moves: its mean weighed by s is B/Σs exactly.",
    ),
    Experiment(
        name="capp-care",
        paper="capp",
        title="Accuracy and privacy loss against care",
        shows="Figure 3",
        setting=f"{SETTING} B = 50, C = 10, μ_w = 2, ε² = 2.2·10⁴.",
        trial=by_care,
        quick=Effort(QUICK_CELLS, 5, 2.0),
        full=Effort(QUICK_CELLS, 30, 2.0),
        claims=(
            Monotone("accuracy falls as users care more (Fig 3a)", "accuracy", NETWORKS, "falls"),
            Monotone("the privacy loss falls as users care more (Fig 3b)", "loss", NETWORKS, "falls"),
        ),
        plots=_plots("care σ_s"),
        uses=("Facebook ego network",),
        deviations=("ε² = 2.2·10⁴: with the printed value nothing is visible.",),
    ),
)
