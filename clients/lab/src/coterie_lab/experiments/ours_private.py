"""Our own experiments: accuracy within a total ε by secure sums, clip norms, correlated noise, and a masked market."""

from __future__ import annotations

import math
from pathlib import Path

from coterie_lab.claims import AtLeast, AtMost, Claim, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.readings import Reading

NOWHERE = float("nan")
METHODS = ("each by itself", "secure sum", "no noise")


def private(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Accuracy after all rounds within ε by every method, and the points that secure sums lose."""
    from dataclasses import replace

    from coterie_lab.mesh_data import load_images
    from coterie_lab.private import Setting, accuracy

    images = load_images(data if cell.get("data") == "MNIST" else None, MNIST_TESTS)
    if cell.get("data") == "MNIST":
        images = replace(images, train=images.train[:MNIST_TRAIN], train_labels=images.train_labels[:MNIST_TRAIN])
    setting = Setting(
        devices=int(cell["devices"]),
        epsilon=float(cell["epsilon"]),
        quorum=float(cell["quorum"]),
        lost=float(cell["lost"]),
    )
    changed = {key: cell[key] for key in ("clip_norm", "rate", "steps", "concentration") if key in cell}
    setting = replace(setting, **changed)  # type: ignore[arg-type]  # a cell's values are scalars
    name = _name(cell)
    scores = {method: accuracy(images, setting, method, seed)[0] for method in METHODS}
    return [
        *(Reading(f"accuracy, {name}", method, NOWHERE, score) for method, score in scores.items()),
        Reading("points lost", name, NOWHERE, 100.0 * (scores["no noise"] - scores["secure sum"])),
    ]


def clipped(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Accuracy and the last clip norm, fixed or following the median of the norms."""
    from coterie_lab.mesh_data import load_images
    from coterie_lab.private import Setting, accuracy

    setting = Setting(50, 4.0, clip_norm=float(cell["clip_norm"]), adaptive=bool(cell["adaptive"]))
    name = f"{'starts at' if setting.adaptive else 'fixed at'} {setting.clip_norm:g}"
    score, last = accuracy(load_images(None), setting, "secure sum", seed)
    clear, _ = accuracy(load_images(None), setting, "no noise", seed)
    return [
        Reading("accuracy", name, 0.0, score),
        Reading("accuracy", name, 1.0, clear),
        Reading("secure sum", name, NOWHERE, score),
        Reading("last clip norm", name, NOWHERE, last),
    ]


def correlated(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Noise of the last model relative to independent noise, and its accuracy."""
    from coterie_lab.correlated import Plan
    from coterie_lab.mesh_data import load_images
    from coterie_lab.private import Setting

    plan, task = Plan(int(cell["groups"]), int(cell["bands"])), Setting(250, 2.0)
    return [
        Reading("noise of the last model", plan.name, NOWHERE, plan.final_noise(task.rounds, task.devices)),
        Reading("accuracy", plan.name, NOWHERE, plan.accuracy(load_images(None), task, seed)),
    ]


def masked(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """ε of an example in a market, in the clear and from the masked sum, by formulas alone."""
    from coterie.privacy.gaussian import exact_epsilon
    from coterie_lab.private import DELTA
    from services.aggregation.domain.secure_terms import SumRules, least_survivors

    total = int(cell["rounds"]) * float(cell["rho"])
    honest = SumRules().honest(least_survivors(0.9, int(cell["devices"])))
    return [
        Reading("ε of one example", series, NOWHERE, exact_epsilon(1.0 / math.sqrt(2.0 * rho), DELTA))
        for series, rho in (("in the clear", total), ("from the masked sum", total / honest))
    ]


def _name(cell: Cell) -> str:
    lost = float(cell["lost"])
    return f"{cell['devices']} devices, ε = {cell['epsilon']:g}" + (
        f", {lost:.0%} lost".replace("%", " %") * bool(lost)
    )


def _cells(**changes: str | float) -> tuple[Cell, ...]:
    """50 devices at ε = 4 and 250 at ε = 2, with all present and with 30 % lost."""
    return tuple(
        {"devices": devices, "epsilon": epsilon, "quorum": quorum, "lost": lost, **changes}
        for devices, epsilon in ((50, 4.0), (250, 2.0))
        for quorum, lost in ((0.9, 0.0), (0.65, 0.3))
    )


def _ordered(*cells: Cell) -> tuple[Claim, ...]:
    return tuple(
        Ordered(f"each by itself, secure sum, no noise ({_name(cell)})", f"accuracy, {_name(cell)}", METHODS)
        for cell in cells
    )


def _plots(*cells: Cell) -> tuple[Plot, ...]:
    return tuple(Plot(f"accuracy, {_name(cell)}", "", "test accuracy") for cell in cells)


MNIST_TRAIN, MNIST_TESTS = 25_000, 10_000
EVEN, UNEVEN = _cells(), _cells(steps=20, concentration=0.5)[::2]
MNIST: tuple[Cell, ...] = tuple(
    {**cell, "epsilon": 4.0, "data": "MNIST", "clip_norm": 0.2, "rate": 0.1, "steps": 2} for cell in EVEN[2:]
)
CLIPS: tuple[Cell, ...] = tuple({"clip_norm": norm, "adaptive": follows} for norm in (4.0, 0.02) for follows in (0, 1))
PLANS: tuple[Cell, ...] = tuple(
    {"groups": groups, "bands": bands} for groups, bands in ((1, 1), (1, 5), (5, 1), (5, 5), (10, 1), (10, 10))
)
METHODS_SAY = (
    "Secure sum: the noise is shared out over the devices that must be honest; each by itself: every device adds all "
    "of it. Clip, grid, rounding and noise are the product's; masks cancel and are left out."
)
EXPERIMENTS = (
    Experiment(
        name="ours-private",
        paper="ours",
        title="Private and useful: secure sums",
        shows="accuracy within a total ε",
        setting="Softmax on the 8×8 digits, dealt evenly, 50 rounds composed at δ = 1e-5, 5 steps of rate 1 a round, "
        f"clip norm 0.5. {METHODS_SAY}",
        trial=private,
        quick=Effort(EVEN[::2], 10, 2.0),
        full=Effort(EVEN, 30, 2.0),
        claims=(
            *(
                AtMost(f"{_name(cell)}: at most 5 points lost to no noise", "points lost", _name(cell), 5.0)
                for cell in EVEN[::2]
            ),
            *_ordered(*EVEN[::2]),
        ),
        plots=_plots(*EVEN[::2]),
    ),
    Experiment(
        name="ours-private-uneven",
        paper="ours",
        title="Private and useful on uneven data",
        shows="accuracy within a total ε",
        setting="As `ours-private`, dealt by Dirichlet(0.5), so that a device has few classes; 20 steps of rate 1 a "
        "round.",
        trial=private,
        quick=Effort(UNEVEN[:1], 3, 15.0),
        full=Effort(UNEVEN, 5, 15.0),
        claims=_ordered(*UNEVEN),
        plots=_plots(*UNEVEN),
    ),
    Experiment(
        name="ours-private-mnist",
        paper="ours",
        title="Private and useful on MNIST",
        shows="accuracy within a total ε",
        setting="Softmax on 25,000 training images of MNIST, dealt evenly to 250 devices, 10,000 test images; 50 "
        f"rounds of 2 steps of rate 0.1, clip norm 0.2. {METHODS_SAY}",
        trial=private,
        quick=Effort(MNIST[:1], 3, 120.0),
        full=Effort(MNIST, 3, 120.0),
        claims=_ordered(*MNIST),
        plots=_plots(*MNIST),
        needs=("MNIST",),
    ),
    Experiment(
        name="ours-clip-norm",
        paper="ours",
        title="The clip norm",
        shows="adaptive clip norms",
        setting="50 devices, ε = 4, even digits, as `ours-private`. A wrong clip norm costs accuracy. Following the "
        "median of the norms (`privacy.clip_quantile` 0.5) recovers part of it; the same charge covers its count.",
        trial=clipped,
        quick=Effort(CLIPS, 3, 3.0),
        full=Effort(CLIPS, 10, 3.0),
        claims=tuple(
            Ordered(
                f"following the median recovers accuracy from {norm}",
                "secure sum",
                (f"fixed at {norm}", f"starts at {norm}"),
            )
            for norm in ("4", "0.02")
        ),
        plots=(
            Plot("accuracy", "", "test accuracy", groups=("secure sum", "no noise")),
            Plot("last clip norm", "", "clip norm after the last round"),
        ),
    ),
    Experiment(
        name="ours-correlated",
        paper="ours",
        title="Noise correlated over rounds",
        shows="decision 0007",
        setting="250 devices, digits, 50 rounds, total ε = 2, δ = 1e-5. A banded matrix mechanism takes back part of "
        "a round's noise in later rounds. Noise is relative to independent noise with all devices in every round.",
        trial=correlated,
        quick=Effort(PLANS, 3, 3.0),
        full=Effort(PLANS, 10, 3.0),
        claims=(
            Ordered(
                "independent noise with all devices in every round has the least noise",
                "noise of the last model",
                ("1 group, 1 band", "5 groups, 5 bands", "5 groups, 1 band"),
            ),
            AtLeast("bands add noise where all devices take part", "noise of the last model", "1 group, 5 bands", 1.0),
        ),
        plots=(Plot("noise of the last model", "", "relative deviation"), Plot("accuracy", "", "test accuracy")),
    ),
    Experiment(
        name="ours-masked-market",
        paper="ours",
        title="ε of an example in a masked market",
        shows="what the platform sees of a sale",
        setting="20 devices, 30 rounds, each sells ρ = 0.279 a round (the mean of `agents-market`), δ = 1e-5. In the "
        "clear the platform sees every update; masked, it sees their sum with the noise of all. Devices are charged "
        "the same: that the others' noise adds up is proved only for one step a round with equal weights. No ε "
        "describes the whole device.",
        trial=masked,
        quick=Effort(({"devices": 20, "rounds": 30, "rho": 0.279},), 3, 0.1),
        full=Effort(({"devices": 20, "rounds": 30, "rho": 0.279},), 3, 0.1),
        claims=(
            Ordered("the masked sum shows less", "ε of one example", ("from the masked sum", "in the clear")),
            AtMost("… and at most ε = 8", "ε of one example", "from the masked sum", 8.0),
        ),
        plots=(Plot("ε of one example", "", "ε at δ = 1e-5"),),
    ),
)
