"""[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things: time to accuracy, Table III.

Plans are the topology service's own, training is the device's own step (`coterie.mixing`); seconds are those of the
simulated clock. See `coterie_lab.mesh`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import cast

from coterie_lab.claims import AtLeast
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.mesh import GRAPHS, TARGETS, contenders, radio_network, rounds_to_targets
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
        deviations=(
            "Baselines are rebuilt from their description and called DABMD-like and PDOO-like.",
            "Noise is the provable one with clipped gradients; the paper's scale gives no guarantee.",
        ),
    ),
)
