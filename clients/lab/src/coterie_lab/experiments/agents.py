"""Clusters and the market over real services and agents: every trial starts a platform with its devices.

Trials take a minute each and use several processes; ledgers, payments and plans are read from the platform afterwards.
"""

from __future__ import annotations

import math
from pathlib import Path

from coterie_lab.claims import AtLeast, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.readings import Reading

NOWHERE = float("nan")
CLUSTER_METHODS = ("FedAvg, no noise", "clusters", "uniform noise")
MARKET_METHODS = ("market", "social-agnostic", "no noise")
SPLITS = ("IID", "Dirichlet 0.3")


def clustered(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Accuracy, privacy loss by the devices' ledgers, and the last plan of one method."""
    from coterie_lab.cluster_agents import run, study

    method = str(cell["method"])
    outcome = run(study(str(cell["data"]), data, seed), method, seed, int(cell["rounds"]))
    readings = [
        *(Reading("accuracy by round", method, float(k), 100.0 * value) for k, value in enumerate(outcome.curve)),
        Reading("accuracy", method, NOWHERE, 100.0 * outcome.curve[-1]),
        Reading("largest ε", method, NOWHERE, max(outcome.epsilons)),
        Reading("devices with noised releases", method, NOWHERE, float(outcome.noised)),
        Reading("raw updates", method, 0.0, float(sum(outcome.raw))),
        Reading("raw updates", method, 1.0, float(outcome.delivered if method == CLUSTER_METHODS[0] else 0)),
    ]
    if not math.isnan(outcome.payoff):
        readings += [
            Reading("mean payoff", "in clusters", NOWHERE, outcome.payoff),
            Reading("mean payoff", "alone", NOWHERE, outcome.solo_payoff),
            Reading("individually stable", method, NOWHERE, float(outcome.stable is True)),
        ]
    return readings


def sold(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Accuracy, budgets, payments and the largest ε of one way to set budgets."""
    from coterie_lab.market_agents import load_images, run, split

    method, dealt, images = str(cell["method"]), str(cell["split"]), int(cell["images"])
    pictures = load_images(data)
    outcome = run(method, pictures, split(pictures.train_labels, dealt, seed, images), seed, int(cell["rounds"]))
    name = f"{images} images, {dealt}"
    return [
        *(Reading(f"accuracy by round, {name}", method, float(k), v) for k, v in enumerate(outcome.curve, 1)),
        Reading(f"accuracy, {name}", method, NOWHERE, outcome.curve[-1]),
        Reading(f"mean ρ, {name}", method, NOWHERE, outcome.budget),
        Reading(f"credits, {name}", method, NOWHERE, outcome.paid),
        Reading(f"largest ε, {name}", method, NOWHERE, outcome.epsilon),
        Reading("sound books", method, NOWHERE, float(outcome.sound)),
    ]


def _clusters(name: str, data_set: str, training: str, needs: tuple[str, ...] = ()) -> Experiment:
    cells: tuple[Cell, ...] = tuple({"data": data_set, "method": item, "rounds": 10} for item in CLUSTER_METHODS)
    return Experiment(
        name=name,
        paper="agents",
        title=f"Social clusters over real agents, {data_set}",
        shows="accuracy against privacy",
        setting="Five service processes and the twelve agents of `coterie demo clusters` (circles of 4, 3 and 2 "
        f"friends, two acquaintances, a stranger). Softmax regression from 0, 5 local epochs, {training}; noise "
        "σ_max = 0.6 at clip norm 2; data dealt by Dirichlet(1). All methods have the same devices, data and "
        "friendships. ε is the largest in the devices' ledgers, at δ = 1e-5, device level, all rounds composed. It "
        "counts noised releases only: no ε describes a raw one.",
        trial=clustered,
        quick=Effort(cells, 3, 20.0),
        full=Effort(cells, 5, 20.0),
        claims=(
            Ordered("noise by trust costs less accuracy than equal noise", "accuracy", ("uniform noise", "clusters")),
            Ordered("the most exposed device has a larger ε", "largest ε", ("uniform noise", "clusters")),
            Ordered("clusters pay more than being alone", "mean payoff", ("alone", "in clusters")),
            AtLeast("the last plan is individually stable", "individually stable", "clusters", 1.0),
        ),
        plots=(
            Plot("accuracy by round", "rounds", "accuracy on held-out images, %"),
            Plot("accuracy", "", "accuracy after the last round, %"),
            Plot("largest ε", "", "ε at δ = 1e-5"),
            Plot("raw updates", "", "updates", groups=("to heads", "to the platform")),
            Plot("mean payoff", "", "payoff"),
        ),
        needs=needs,
        reading="Nine of the twelve devices are among friends, so two noised updates enter each round's model. "
        "Devices among friends have no ε: the head's discretion and the sum protect them. The acquaintance that "
        "trusts its head 0.4 is the most exposed of the devices with a guarantee. The per-round budgets of [SCFL] are "
        "not privacy over a task; the ledger's figure is.",
    )


def _market_cells(images: tuple[int, ...], splits: tuple[str, ...]) -> tuple[Cell, ...]:
    return tuple(
        {"images": count, "split": split, "method": method, "rounds": 30}
        for count in images
        for split in splits
        for method in MARKET_METHODS
    )


EXPERIMENTS = (
    _clusters("agents-clusters", "digits", "batches of 16 at rate 0.2"),
    _clusters("agents-clusters-mnist", "MNIST", "batches of 32 at rate 0.01, 6,000 images", ("MNIST",)),
    Experiment(
        name="agents-market",
        paper="agents",
        title="Market over real agents",
        shows="[MPPFL] Table 1 over real services",
        setting="Five service processes and 20 agents, 30 rounds of 5 full-batch steps on clipped gradients of "
        "Fashion-MNIST, one hidden layer of 64. The platform quotes prices; each agent chooses its budget from its "
        "own costs, adds the noise that the budget buys, uploads and is paid. Costs are drawn once per seed and the "
        "same for all methods; friends are neighbours in a ring. `social-agnostic` has risk weight 0 on the platform "
        "and the devices; `no noise` averages the same clipped steps. ε is the largest in the devices' ledgers, for "
        "one example, all rounds composed.",
        trial=sold,
        quick=Effort(_market_cells((300,), ("IID",)), 3, 60.0),
        full=Effort(_market_cells((300, 3_000), SPLITS), 3, 120.0),
        claims=(
            *(
                Ordered(
                    f"the market is at most 1 point behind social-agnostic devices ({images} images, {split})",
                    f"accuracy, {images} images, {split}",
                    ("social-agnostic", "market"),
                    1.0,
                )
                for images in (300, 3_000)
                for split in SPLITS
            ),
            *(AtLeast(f"the ledger's book adds up ({name})", "sound books", name, 1.0) for name in MARKET_METHODS),
        ),
        plots=tuple(
            plot
            for images in (300, 3_000)
            for split in SPLITS
            for name in (f"{images} images, {split}",)
            for plot in (
                Plot(f"accuracy by round, {name}", "round", "accuracy on the test images, %"),
                Plot(f"mean ρ, {name}", "", "mean ρ sold per device and round"),
                Plot(f"credits, {name}", "", "credits paid in total"),
                Plot(f"largest ε, {name}", "", "ε at δ = 1e-5"),
            )
        ),
        needs=("Fashion-MNIST",),
        reading="Where noise matters (300 images a device) the market costs a tenth of a point against devices that "
        "ignore their ties, because they sell a little less; with 3,000 images it costs nothing, as in the paper's "
        'table, "within a few tenths". Thirty rounds at these budgets compose to an ε of 30 for one example.',
    ),
)
