"""[DPVD] Multi-task clustered learning over scheduled cells: choosing models (Figure 4), serving data (7, 8).

Schedules, policies and the choice of models are the topology service's own; see `coterie_lab.multitask`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie_lab.claims import AtLeast, Monotone, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.multitask import FIRST_SEED, Fleet, clustering, references
from coterie_lab.readings import Reading
from services.topology.domain.radio import draw_delays, random_layout
from services.topology.domain.scheduling import Cells

STATES = 60


def identified(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 4: the share of devices with their task's model after every round."""
    weight, tasks = float(cell["weight"]), int(cell["tasks"])
    curve = clustering(Fleet(tasks=tasks, users=10 * tasks), weight, FIRST_SEED + seed)
    name = f"λ = {weight:g}" if tasks == 4 else f"K = {tasks}"
    return [Reading("identities", name, float(number), float(share)) for number, share in enumerate(curve)]


def served(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 7 and 8: reward and part of all data served, by number of devices, without learning."""
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


WEIGHTS: tuple[Cell, ...] = tuple({"weight": weight, "tasks": 4} for weight in (0.0, 0.2, 0.5, 0.8))
MORE: tuple[Cell, ...] = tuple({"weight": 0.2, "tasks": tasks} for tasks in (2, 6, 8))
CROWDS: tuple[Cell, ...] = tuple({"devices": users} for users in (6, 12, 24, 48))
EXPERIMENTS = (
    Experiment(
        "dpvd-identities",
        "dpvd",
        "Devices find their task's model",
        "Figure 4",
        "K tasks, ten devices each with 20 samples of 20 dimensions; the model is chosen by loss and gradient "
        "similarity, weighed by λ; one mean gradient step a round.",
        identified,
        quick=Effort(WEIGHTS + MORE, 10, 0.2),
        full=Effort(WEIGHTS + MORE, 30, 0.2),
        claims=(
            AtLeast("96 % have their model after 15 rounds (λ = 0.5)", "identities", "λ = 0.5", 0.96, 15.0),
            AtLeast("… also with λ = 0, the loss alone", "identities", "λ = 0", 0.96, 15.0),
            Monotone("accuracy rises with the rounds", "identities", ("λ = 0.2", "λ = 0.5"), "rises"),
        ),
        plots=(Plot("identities", "round", "share of devices with their model", {"[DPVD]": ((15.0, 0.96),)}),),
        deviations=("The paper leaves lengths, rates and starts open; twelve settings are in the older page.",),
    ),
    Experiment(
        "dpvd-crowds",
        "dpvd",
        "Serving more devices than there are blocks",
        "Figures 7 and 8, policies without learning",
        "3 stations of 4 blocks, 6 to 48 devices; delays drawn anew for every decision.",
        served,
        quick=Effort(CROWDS, 6, 3.0),
        full=Effort(CROWDS, 20, 3.0),
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
        deviations=("Learners take minutes each: `python -m coterie_lab.multitask --full` compares them.",),
    ),
)
