"""[SCFL] Social Cluster-Based Federated Learning: forming clusters, Figures 14 and 16.

The game, both orders of play and the baselines are the topology service's own; see `coterie_lab.cluster_games` for the
networks and `coterie_lab.experiments.scfl_learning` for learning in clusters.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np

from coterie_lab import cluster_games as games
from coterie_lab import formation_baselines as baselines
from coterie_lab.claims import AtLeast, AtMost, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.readings import Reading
from services.topology.domain.formation import form

NOWHERE = float("nan")
PARTICIPANTS, START_CLUSTERS = 100, 40
SWEEPS = range(9)
"""Sweeps that are shown; who ends sooner stays where it is."""
ORDER = ("alone", "top-10", "clusters", "local search", "bound")


def formed(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """One sample, one random start: clusters after every sweep, and payoffs beside those of the baselines."""
    random, sampling = np.random.default_rng(seed), cast(games.Sampling, cell["sample"])
    effect = cast(games.Effect, cell["effect"])
    name = f"{sampling}, {effect}"
    game = games.play_on(games.sample(games.load_network(data), sampling, PARTICIPANTS, random), effect, random)
    start = games.random_start(PARTICIPANTS, START_CLUSTERS, random)
    result, swept = form(game, start, "rounds"), form(game, start, "sweep", restarts=0, search=False)
    payoffs = {
        "alone": float(baselines.non_cooperative(game).payoff.mean()),
        "top-10": float(baselines.social_influence(game).payoff.mean()),
        "clusters": float(result.payoff.mean()),
        "local search": baselines.local_search(game, result.partition).welfare / PARTICIPANTS,
        "bound": baselines.upper_bound(game) / PARTICIPANTS,
    }
    return [
        *(Reading("clusters", name, float(k), float(swept.counts[min(k, len(swept.counts) - 1)])) for k in SWEEPS),
        *(Reading(f"payoff, {name}", who, NOWHERE, value) for who, value in payoffs.items()),
        Reading("sweeps", name, NOWHERE, float(swept.iterations)),
        Reading("clusters at the end", name, NOWHERE, float(len(swept.clusters))),
        Reading("stable", name, NOWHERE, float(result.stable)),
    ]


CONNECTED, SPARSE = "breadth first, strong", "random nodes, strong"
CELLS: tuple[Cell, ...] = tuple(
    {"sample": sample, "effect": effect}
    for sample, effect in (
        ("breadth first", "strong"),
        ("snowball 3", "strong"),
        ("random walk", "strong"),
        ("breadth first", "weak"),
        ("random nodes", "strong"),
        ("random nodes", "weak"),
    )
)
EXPERIMENTS = (
    Experiment(
        name="scfl-clusters",
        paper="scfl",
        title="Forming clusters of 100 participants",
        shows="Figures 14 and 16",
        setting="100 participants of the Facebook network, 40 random clusters at first, closeness uniform on "
        "[0.7, 1] (strong) "
        "or [0, 0.7] (weak), γ uniform on [0.05, 20], ζ = 0; devices move in turn (sweeps), or by the printed batch "
        "rules with restarts and search (payoffs).",
        trial=formed,
        quick=Effort(CELLS[:1] + CELLS[4:5], 10, 0.5),
        full=Effort(CELLS, 30, 0.5),
        claims=(
            AtMost("40 clusters become about 25 (Fig 16; at most 28)", "clusters at the end", CONNECTED, 28.0),
            AtLeast("… and not fewer than 20", "clusters at the end", CONNECTED, 20.0),
            AtMost("within 7 iterations (Fig 16)", "sweeps", CONNECTED, 7.0),
            AtMost("the same on uniformly random nodes, as the text samples", "clusters at the end", SPARSE, 28.0),
            Ordered("alone, top-10, clusters, local search, bound (Fig 14)", f"payoff, {CONNECTED}", ORDER),
            AtLeast("the game ends stable (Theorem 3, with restarts and search)", "stable", CONNECTED, 1.0),
        ),
        plots=(
            Plot("clusters", "sweep", "clusters", {"[SCFL] Fig 16": ((0.0, 40.0), (7.0, 25.0))}),
            Plot(f"payoff, {CONNECTED}", "", "mean payoff per device"),
        ),
        uses=("Facebook ego network",),
        deviations=(
            "The text samples nodes at random; such samples hardly have ties, so connected samples stand beside them.",
            "Plain sweeps may end unstable, against Theorem 3; restarts and a search end stable.",
        ),
        reading="The printed batch rules need several times as many iterations as devices that move in turn, because "
        "every cluster admits one applicant per round. Uniformly random nodes share few ties: most are isolated and "
        "stay alone. The sampling that fits Figure 16 was picked after seeing it, so it shows consistency, not proof.",
    ),
)
