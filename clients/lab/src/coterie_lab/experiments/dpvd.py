"""[DPVD] Multi-task clustered learning over scheduled cells: serving devices (Figure 4), identities (7), noise (8).

Schedules, policies, noise and the choice of models are the topology service's own; see `coterie_lab.multitask`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie_lab.claims import AtLeast, AtMost, Monotone, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.multitask import FIRST_SEED, Fleet, clustering, references
from coterie_lab.readings import Reading
from services.topology.domain.cell_noise import NoiseWeights, bounded_noise
from services.topology.domain.radio import draw_delays, random_layout
from services.topology.domain.scheduling import NO_STATION, Cells
from services.topology.domain.scheduling_policies import matching

STATES = 60


def identified(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 7: the share of devices with their task's model after every round."""
    weight, tasks = float(cell["weight"]), int(cell["tasks"])
    curve = clustering(Fleet(tasks=tasks, users=10 * tasks), weight, FIRST_SEED + seed)
    name = f"λ = {weight:g}" if tasks == 4 else f"K = {tasks}"
    return [Reading("identities", name, float(number), float(share)) for number, share in enumerate(curve)]


def served(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 4: reward and part of all data served, by number of devices, without learning."""
    users = int(cell["devices"])
    layout = random_layout(np.random.default_rng(FIRST_SEED + seed), users=users)
    states = draw_delays(layout, np.random.default_rng([FIRST_SEED + seed, 2]), STATES)
    scores = references(Cells.of(layout), states, FIRST_SEED + seed)
    return [
        reading
        for name, score in scores.items()
        for reading in (
            Reading("data served", name, float(users), score.data),
            Reading("reward", name, float(users), score.reward),
        )
    ]


def weighed(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 8: what noise costs the loss and what privacy it buys, by γ."""
    users = int(cell["devices"])
    layout = random_layout(np.random.default_rng(FIRST_SEED + seed), users=users)
    cells = Cells.of(layout)
    delays = draw_delays(layout, np.random.default_rng([FIRST_SEED + seed, 2]), 1)[0]
    joined = cells.join(delays, matching(cells, delays))
    result = []
    for gamma in GAMMAS:
        weights = NoiseWeights(privacy_weight=gamma)
        served = [layout.samples()[joined == station] for station in np.unique(joined[joined != NO_STATION])]
        plans = [bounded_noise(samples, weights) for samples in served]
        worst = max(weights.loss_weight * float(plan.noise.max()) ** 2 for plan in plans)
        budget = float(np.concatenate([plan.budget for plan in plans]).mean())
        result.append(Reading("loss by noise", f"{users} devices", gamma, worst))
        result.append(Reading("privacy loss", f"{users} devices", gamma, budget))
    return result


GAMMAS = tuple(10.0**power for power in (-4, -2, 0, 2, 4, 6, 7, 8, 10))
WEIGHTS: tuple[Cell, ...] = tuple({"weight": weight, "tasks": 4} for weight in (0.0, 0.2, 0.5, 0.8))
MORE: tuple[Cell, ...] = tuple({"weight": 0.2, "tasks": tasks} for tasks in (2, 6, 8))
CROWDS: tuple[Cell, ...] = tuple({"devices": users} for users in (6, 12, 24, 48))
EXPERIMENTS = (
    Experiment(
        name="dpvd-identities",
        paper="dpvd",
        title="Devices find their task's model",
        shows="Figure 7",
        setting="K tasks, ten devices each with 20 samples of 20 dimensions; the model is chosen by loss and gradient "
        "similarity, weighed by λ; one mean gradient step a round.",
        trial=identified,
        quick=Effort(WEIGHTS + MORE, 10, 0.1),
        full=Effort(WEIGHTS + MORE, 30, 0.1),
        claims=(
            AtLeast("96 % have their model after 15 rounds (λ = 0.5)", "identities", "λ = 0.5", 0.96, 15.0),
            AtLeast("… also with λ = 0, the loss alone", "identities", "λ = 0", 0.96, 15.0),
            Monotone("accuracy rises with the rounds", "identities", ("λ = 0.2", "λ = 0.5"), "rises"),
        ),
        plots=(Plot("identities", "round", "share of devices with their model", {"[DPVD]": ((15.0, 0.96),)}),),
        deviations=("The source leaves lengths, rates and starts open; these resemble the specification's.",),
    ),
    Experiment(
        name="dpvd-crowds",
        paper="dpvd",
        title="Serving more devices than there are blocks",
        shows="Figure 4, policies without learning",
        setting="3 stations of 4 blocks, 6 to 48 devices; delays drawn for every decision.",
        trial=served,
        quick=Effort(CROWDS, 6, 0.5),
        full=Effort(CROWDS, 20, 0.5),
        claims=(
            Ordered(
                "choosing at random serves less data than matching",
                "data served",
                ("random (sees all)", "matching (sees all)"),
            ),
            Monotone(
                "the part of all data that is served falls with the number of devices",
                "data served",
                ("matching (sees all)",),
                "falls",
            ),
        ),
        plots=(Plot("data served", "devices", "part of all data served"),),
        deviations=(
            "The source plots a loss; reward and the part of all data that is served are what the loss is made of.",
            "Learners are in `dpvd-penalty` and `dpvd-decomposition`.",
        ),
    ),
    Experiment(
        name="dpvd-weight",
        paper="dpvd",
        title="Noise against the weight of privacy",
        shows="Figure 8",
        setting="12 devices around 3 stations, all data served; every station solves its own noise problem, "
        "which weighs the "
        "largest variance of noise against γ times the sum of zCDP budgets ρ.",
        trial=weighed,
        quick=Effort(({"devices": 12},), 10, 0.2),
        full=Effort(({"devices": 12}, {"devices": 48}), 30, 0.2),
        claims=(
            Monotone("noise's part of the loss rises with γ", "loss by noise", ("12 devices",), "rises"),
            Monotone("the privacy loss falls with γ", "privacy loss", ("12 devices",), "falls"),
            AtMost("up to γ = 10⁷ noise adds little (at most 1) to the loss", "loss by noise", "12 devices", 1.0, 1e7),
        ),
        plots=(
            Plot("loss by noise", "weight γ", "largest (d²/2L)·σ²", log_x=True, log_y=True),
            Plot("privacy loss", "weight γ", "mean zCDP budget ρ", log_x=True, log_y=True),
        ),
        deviations=(
            "The units of γ are not given; M = d = 1, L = 10 and 50 to 400 samples a device are the specification's, "
            "so where the loss begins to rise is a property of them.",
        ),
    ),
)
