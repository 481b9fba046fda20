"""[DPVD] Cells that learn whom to serve: growing against fixed penalties (Figure 5), together or alone (Figure 6).

Learners are the topology service's own (`services.topology.domain.cell_learning`); see `coterie_lab.multitask`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie_lab.claims import AtLeast, AtMost
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.multitask import FIRST_SEED, NETWORKS, chooser, learners, measure
from coterie_lab.readings import Reading
from services.topology.domain.cell_learning import Progress, train
from services.topology.domain.cell_learning_config import LearningConfig
from services.topology.domain.radio import draw_delays, random_layout
from services.topology.domain.scheduling import Cells

NOWHERE = float("nan")
STATES, SETTLED = 100, 0.9
"""States on which policies are scored, and the part of valid decisions at which one has learnt the constraints."""
EPOCH = LearningConfig().epoch
THREE, FIVE = NETWORKS
NAMES = {
    "growing": "VDN, plain ε, growing penalty",
    "fixed": "VDN, plain ε, fixed penalty 1.6e4",
    "together": "specified VDN",
    "alone": "specified IQL",
}
"""Short names of this page → learners of `coterie_lab.multitask`."""


def penalised(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 5: one learner with a growing penalty, the same with a fixed one."""
    curves, rewards = _trained(cell, seed, ("growing", "fixed"))
    result = _shared(curves, rewards)
    late = {name: [progress.valid for progress in curve[len(curve) // 2 :]] for name, curve in curves.items()}
    if all(max(values) >= SETTLED for values in late.values()) and np.var(late["fixed"]) > 0:
        left = float(np.var(late["growing"]) / np.var(late["fixed"]))
        result.append(Reading("variance left", "growing", NOWHERE, left))
    return _named(result, cell)


def decomposed(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 6: stations whose values are summed, and stations that learn alone."""
    curves, rewards = _trained(cell, seed, ("together", "alone"))
    gain = (rewards["together"] - rewards["alone"]) / abs(rewards["alone"])
    return _named([*_shared(curves, rewards), Reading("more reward", "together", NOWHERE, gain)], cell)


def _trained(cell: Cell, seed: int, names: Sequence[str]) -> tuple[dict[str, list[Progress]], dict[str, float]]:
    """Every learner's course on one network, and what its last policy earns by the growing penalty."""
    layout = random_layout(np.random.default_rng(FIRST_SEED + seed), **NETWORKS[str(cell["network"])])
    judge = Cells.of(layout)
    states = draw_delays(layout, np.random.default_rng([FIRST_SEED + seed, 2]), STATES)
    known = learners(int(cell["steps"]))
    curves: dict[str, list[Progress]] = {name: [] for name in names}
    rewards = {}
    for name in names:
        config, reward = known[NAMES[name]]
        policy = train(Cells.of(layout, reward), config, FIRST_SEED + seed, on_progress=curves[name].append)
        rewards[name] = measure(judge, states, chooser(policy, judge)).reward
    return curves, rewards


def _shared(curves: dict[str, list[Progress]], rewards: dict[str, float]) -> list[Reading]:
    """What both figures show of two learners, ours first."""
    return [
        *(
            Reading("valid decisions", name, progress.step / EPOCH, progress.valid)
            for name, curve in curves.items()
            for progress in curve
        ),
        *(Reading("reward at the end", name, NOWHERE, reward) for name, reward in rewards.items()),
        *sooner(curves, *curves),
    ]


def sooner(curves: dict[str, list[Progress]], ours: str, theirs: str) -> list[Reading]:
    """First epochs with 90 % valid decisions; who never gets there counts as one epoch after the last."""
    first = {
        name: next((p.step / EPOCH for p in curve if p.valid >= SETTLED), curve[-1].step / EPOCH + 1)
        for name, curve in curves.items()
    }
    saved = 1.0 - first[ours] / first[theirs] if first[theirs] > 0 else float(first[ours] == 0) - 1.0
    return [
        *(Reading("epochs to 90 % valid", name, NOWHERE, first[name]) for name in (ours, theirs)),
        Reading("epochs saved", ours, NOWHERE, saved),
    ]


def _named(readings: list[Reading], cell: Cell) -> list[Reading]:
    """Series of the larger network differ from those of the smaller."""
    if cell["network"] == THREE:
        return readings
    return [replace(item, series=f"{item.series}, five stations") for item in readings]


def _cells(steps: int, *networks: str) -> tuple[Cell, ...]:
    return tuple({"network": name, "steps": steps} for name in networks)


SETTING = (
    "{network}; the specification's learner (a network over sets of devices, ε-greedy, replay), one evaluation on 64 "
    "states after every 50 steps; the last policy is scored on 100 others."
)
SHORT = "Quick runs train for 400 steps and full ones for 1,500; the source trains for hundreds of epochs."
NEVER = "A learner that never makes 90 % valid decisions counts as one epoch after its last."
PLOTS = (
    Plot("valid decisions", "epoch of 50 steps", "part of valid greedy decisions"),
    Plot("epochs to 90 % valid", "", "epochs of 50 steps"),
    Plot("reward at the end", "", "mean reward of a decision"),
)
EXPERIMENTS = (
    Experiment(
        name="dpvd-penalty",
        paper="dpvd",
        title="Growing against fixed penalties",
        shows="Figure 5",
        setting=SETTING.format(network=THREE)
        + " The fixed penalty is 16,000, the largest value that the growing one takes.",
        trial=penalised,
        quick=Effort(_cells(400, THREE), 6, 14.0),
        full=Effort(_cells(1500, THREE), 12, 60.0),
        claims=(
            AtLeast("valid decisions 25 % sooner", "epochs saved", "growing", 0.25),
            AtMost("at most a fifth of the variance is left in the second half", "variance left", "growing", 0.2),
        ),
        plots=PLOTS,
        deviations=(
            SHORT,
            NEVER,
            "Variance is that of the part of valid decisions, since rewards under two penalties share no unit, and is "
            "compared only on networks where both learners arrive: one that is always wrong never varies.",
        ),
    ),
    Experiment(
        name="dpvd-decomposition",
        paper="dpvd",
        title="Stations that learn together or alone",
        shows="Figure 6",
        setting=SETTING.format(network=f"{THREE}, and in full runs {FIVE}")
        + " Together: values of all stations are summed (VDN). Alone: each learns from the team's reward by itself.",
        trial=decomposed,
        quick=Effort(_cells(400, THREE), 6, 14.0),
        full=Effort(_cells(1500, THREE, FIVE), 12, 60.0),
        claims=(
            AtLeast("15 % more reward than alone", "more reward", "together", 0.15),
            AtLeast("valid decisions 20 % sooner", "epochs saved", "together", 0.2),
        ),
        plots=PLOTS,
        deviations=(
            SHORT,
            NEVER,
            "Which figure shows it is not said in the summary at hand; 6 is what remains between 5 and 7.",
        ),
        reading="The order is a property of the learner, not of the problem: the device-by-device learner that the "
        "platform uses gets more from both, and with it the two are alike. A plan that all stations compute from "
        "registered positions, without learning, comes closer to the matching that sees everything than any learner.",
    ),
)
