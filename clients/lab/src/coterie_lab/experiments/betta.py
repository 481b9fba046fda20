"""[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things: time to accuracy, Table III.

Plans are the topology service's own, training is the device's own step (`coterie.mixing`); seconds are those of the
simulated clock. See `coterie_lab.mesh`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import cast

from coterie.mixing import Sensitivity
from coterie_lab.claims import AtLeast, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.mesh import GRAPHS, TARGETS, accuracies, contenders, radio_network, rounds_to_targets
from coterie_lab.mesh_data import Images, load_images
from coterie_lab.readings import Reading
from services.topology.domain.betta_network import Transfers

NOWHERE = float("nan")
BASELINES = ("DABMD-like", "PDOO-like")


@cache
def images(data: Path | None) -> Images:
    """Loaded once in a process."""
    return load_images(data)


def raced(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """All contenders on one network: seconds to each target, and the share BeTTa saves of the better baseline's."""
    kind, count, clock = str(cell["graph"]), int(cell["devices"]), cast(Transfers, cell["transfers"])
    network, name = radio_network(kind, count, seed), f"{kind}, {clock}"
    seconds: dict[str, dict[float, float]] = {}
    for contender in contenders(network, clock):
        rounds = rounds_to_targets(contender, images(data), seed)
        seconds[contender.name] = {target: number * contender.round_seconds for target, number in rounds.items()}
    found = [
        Reading(f"seconds, {name}", who, target, spent)
        for who, reached in seconds.items()
        for target, spent in reached.items()
    ]
    for target in TARGETS:
        rivals = [seconds[who][target] for who in BASELINES if target in seconds[who]]
        ours = seconds["BeTTa"].get(target)
        if rivals and ours is not None:
            found.append(Reading("saved", name, target, 1.0 - ours / min(rivals)))
    return found


def hidden(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Accuracy where everybody is noised, by the provable scale and by the paper's, and where nobody is."""
    name, epsilon, rounds = str(cell["scale"]), float(cell["epsilon"]), int(cell["rounds"])
    network = radio_network("owner cliques", 16, seed)
    who = next(each for each in contenders(network, "parallel", epsilon=epsilon) if each.name == "PDOO-like")
    who = who if name != "no noise" else replace(who, noisy=frozenset())
    sensitivity: Sensitivity = "paper" if name == "the paper's scale" else "clipped"
    curve = list(islice(accuracies(who, images(data), seed, epsilon=epsilon, sensitivity=sensitivity), rounds))
    return [
        *(Reading("accuracy", name, float(number), value) for number, value in enumerate(curve, 1)),
        Reading("accuracy at the end", name, NOWHERE, curve[-1]),
    ]


SCALES = ("provable scale", "the paper's scale", "no noise")
NOISED: tuple[Cell, ...] = tuple({"scale": name, "epsilon": 10.0, "rounds": 15} for name in SCALES)
NOISED_LONG: tuple[Cell, ...] = tuple({"scale": name, "epsilon": 10.0, "rounds": 50} for name in SCALES)
CELLS: tuple[Cell, ...] = tuple(
    {"graph": kind, "devices": count, "transfers": clock}
    for kind in GRAPHS
    for count in (16, 32)
    for clock in ("shared", "parallel")
)
QUICK: tuple[Cell, ...] = tuple(
    {"graph": kind, "devices": 16, "transfers": clock}
    for kind in ("hubs", "owner cliques")
    for clock in ("shared", "parallel")
)
EXPERIMENTS = (
    Experiment(
        "betta-race",
        "betta",
        "Time to accuracy against two baselines",
        "Figures 4 to 6 and Table III",
        "Devices on a square of 300 m, Wi-Fi within 100 m, LoRa beyond; boards of 77, 32 and 14 s a batch; softmax "
        "regression on data that arrives during training (300 at first, 10 to 30 more a round), ε = 1, provable noise.",
        raced,
        quick=Effort(QUICK, 3, 25.0),
        full=Effort(CELLS, 10, 60.0),
        claims=tuple(
            AtLeast(f"time saved ≥ 20 % at 80 % ({kind}, {clock} transfers)", "saved", f"{kind}, {clock}", 0.2, 0.8)
            for kind in ("hubs", "owner cliques")
            for clock in ("shared", "parallel")
        ),
        plots=(
            Plot("seconds, hubs, shared", "accuracy", "simulated seconds", log_y=True),
            Plot("saved", "accuracy", "share of the time saved"),
        ),
        uses=("MNIST",),
        deviations=(
            "Baselines are rebuilt from their description and called DABMD-like and PDOO-like.",
            "Noise is the provable one with clipped gradients; the paper's scale gives no guarantee.",
        ),
    ),
    Experiment(
        "betta-noise",
        "betta",
        "Accuracy under both scales of noise",
        "the noise of Figures 4 to 6",
        "16 devices in owner cliques, all of them noised (PDOO-like), ε = 10 a round; softmax regression on data that "
        "arrives during training. The paper's scale follows a batch's own gradient and proves nothing; the provable "
        "one follows the clip norm of every example's gradient.",
        hidden,
        quick=Effort(NOISED, 3, 6.0),
        full=Effort(NOISED_LONG, 10, 20.0),
        claims=(
            Ordered("the provable noise costs accuracy", "accuracy at the end", ("provable scale", "no noise")),
            Ordered("the paper's scale costs less", "accuracy at the end", ("provable scale", "the paper's scale")),
        ),
        plots=(Plot("accuracy", "round", "mean test accuracy"),),
        uses=("MNIST",),
        deviations=("The provable scale is ours; the paper's is shown beside it.",),
    ),
)
