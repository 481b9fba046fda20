"""Our own experiments: asynchronous rounds and contributions, with the aggregation service's staleness and values."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie_lab.claims import AtLeast, AtMost, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.readings import Reading

NOWHERE = float("nan")


# --- asynchronous rounds ----------------------------------------------------------------------------------------------

SYNCHRONOUS, BUFFERED, EQUAL = "synchronous", "asynchronous", "asynchronous, stale as fresh"
TARGET = 0.85


def paced(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Accuracy over simulated time where some devices are very slow."""
    from coterie_lab import federations as fed
    from coterie_lab.cohorts import Lesson
    from coterie_lab.images import DIGITS, image_set
    from coterie_lab.paces import Clock
    from services.aggregation.domain.buffering import Buffering

    pace, devices, limit = str(cell["pace"]), int(cell["devices"]), float(cell["seconds"])
    random, images = np.random.default_rng([seed, 21]), image_set(DIGITS, None, 1_438, 359)
    cohort = fed.dealt(images, np.full(devices, 0.5), devices, random)
    federation = fed.Federation(images, cohort, fed.small_mlp(64), Lesson(0.1, 8))
    clock = Clock(federation, random.lognormal(0.0, 1.0, devices), seed)
    if pace == SYNCHRONOUS:
        steps = list(clock.synchronous(limit))
    else:
        steps = list(clock.buffered(Buffering(devices // 4, 0.5 if pace == BUFFERED else 0.0), limit))
    reached = next((now for now, accuracy in steps if accuracy >= TARGET), limit)
    return [
        *(Reading("accuracy", pace, x, _latest(steps, x)) for x in np.linspace(0.0, limit, 16)[1:].tolist()),
        Reading("seconds to 85 %", pace, NOWHERE, reached),
        Reading("accuracy at the end", pace, NOWHERE, steps[-1][1]),
    ]


def _latest(steps: list[tuple[float, float]], now: float) -> float:
    return next((accuracy for time, accuracy in reversed(steps) if time <= now), 0.0)


# --- contributions ----------------------------------------------------------------------------------------------------

CARE = ("honest", "half of its labels wrong", "all of its labels wrong")


def contributed(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Shapley values of devices with good and with bad labels, and how near sampled values come to exact ones."""
    import torch

    from coterie_lab import federations as fed
    from coterie_lab.cohorts import Cohort, Lesson, changes, parameters_of
    from coterie_lab.images import DIGITS, image_set
    from services.aggregation.domain.contribution import exact, sampled

    devices, random = int(cell["devices"]), np.random.default_rng([seed, 22])
    images = image_set(DIGITS, None, 1_438, 359)
    dealt = fed.dealt(images, None, devices, random)
    bad, worse = dealt.shares[0, ::2], dealt.shares[1]
    targets = dealt.targets.clone()
    for places in (bad, worse):
        targets[places] = (targets[places] + torch.from_numpy(random.integers(1, 10, len(places)))) % 10
    cohort = Cohort(dealt.inputs, targets, dealt.shares, dealt.counts)
    federation = fed.Federation(images, cohort, fed.small_mlp(64), Lesson(0.1, 8, epochs=4))
    first = parameters_of(federation.module)
    rows = torch.cat(list(changes(federation.module, first, cohort, federation.lesson, seed, federation.kernel)))

    def worth(coalition: frozenset[int]) -> float:
        mean = rows[sorted(coalition)].mean(dim=0) if coalition else torch.zeros_like(first)
        return federation.score(first + mean).accuracy

    known = {frozenset(k for k in range(devices) if mask >> k & 1): 0.0 for mask in range(1 << devices)}
    known = {coalition: worth(coalition) for coalition in known}
    values = exact(devices, known.__getitem__)
    near = sampled(devices, known.__getitem__, random, max_evaluations=(1 << devices) // 4)
    scale = abs(known[frozenset(range(devices))] - known[frozenset()])
    return [
        Reading("Shapley value", CARE[0], NOWHERE, float(values[2:].mean())),
        Reading("Shapley value", CARE[1], NOWHERE, float(values[0])),
        Reading("Shapley value", CARE[2], NOWHERE, float(values[1])),
        Reading(
            "error of sampling",
            "share of the worth of all",
            NOWHERE,
            float(np.abs(near.values - values).max()) / scale,
        ),
        Reading("sum of values", "share of the worth of all", NOWHERE, float(values.sum()) / scale),
    ]


# --- the experiments --------------------------------------------------------------------------------------------------

PACES: tuple[Cell, ...] = tuple(
    {"pace": pace, "devices": 40, "seconds": 150.0} for pace in (SYNCHRONOUS, BUFFERED, EQUAL)
)
EXPERIMENTS = (
    Experiment(
        name="ours-asynchronous",
        paper="ours",
        title="Asynchronous rounds",
        shows="accuracy over time",
        setting="40 devices, digits dealt unevenly (Dirichlet 0.5), a hidden layer of 32; trainings take "
        "lognormal times "
        "(median 1 s, deviation of the logarithm 1). Synchronous rounds wait for the slowest; asynchronous ones step "
        "at ten updates, the stale discounted by (1 + staleness)^−0.5 or not at all.",
        trial=paced,
        quick=Effort(PACES, 5, 1.0),
        full=Effort(PACES, 30, 1.0),
        claims=(
            Ordered("asynchronous rounds reach 85 % sooner", "seconds to 85 %", (BUFFERED, SYNCHRONOUS)),
            AtMost("… within half of the time shown", "seconds to 85 %", BUFFERED, 75.0),
            Ordered("they end no worse (within 2 points)", "accuracy at the end", (SYNCHRONOUS, BUFFERED), 0.02),
        ),
        plots=(Plot("accuracy", "simulated seconds", "test accuracy"),),
        kernel="stacked",
    ),
    Experiment(
        name="ours-contribution",
        paper="ours",
        title="Contributions",
        shows="Shapley values",
        setting="10 devices with 143 digits each, dealt evenly; of one half of the labels are wrong, of another "
        "all. One round "
        "of four epochs; a coalition's worth is the accuracy of its mean update. Exact values of all 1,024 coalitions "
        "beside those of a quarter of them, sampled by the server's own inquiry.",
        trial=contributed,
        quick=Effort(({"devices": 10},), 20, 0.5),
        full=Effort(({"devices": 10},), 60, 0.5),
        claims=(
            Ordered("who labels badly is worth less", "Shapley value", (CARE[2], CARE[1], CARE[0])),
            AtMost(
                "sampled values are within 0.05 of the exact ones",
                "error of sampling",
                "share of the worth of all",
                0.05,
            ),
            AtLeast("values sum to the worth of all devices", "sum of values", "share of the worth of all", 1.0 - 1e-9),
        ),
        plots=(Plot("Shapley value", "", "mean Shapley value (accuracy)"),),
        kernel="stacked",
    ),
)
