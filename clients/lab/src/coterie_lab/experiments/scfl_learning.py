"""[SCFL] Social Cluster-Based Federated Learning: learning in clusters, Figures 3 to 13 and 15.

Clusters, noise and weights are the topology service's own, what leaves a device is the device's own release; devices
train by the lab's kernels. See `coterie_lab.federations`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from coterie_lab import cluster_games as games
from coterie_lab.claims import AtLeast, AtMost, Claim, Monotone, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.readings import Reading
from services.topology.domain.coalition import Game
from services.topology.domain.formation import Formation, form
from services.topology.domain.quality import Measurement, QualityModel, refit
from services.trust.domain.graph import TrustGraph

Floats = NDArray[np.float64]
NOWHERE = float("nan")
TEST_IMAGES = 2_000
LEVELS = ("none", "weak", "strong")


@dataclass(frozen=True, slots=True)
class Study:
    """One data set of the paper: σ_max, γ of the uniform scheme, and how devices train."""

    data: str
    network: str
    noise_max: float
    uniform_non_iid: float
    clip_norm: float
    rate: float
    batch: int


STUDIES = {
    "mnist": Study(
        data="MNIST", network="small_cnn", noise_max=0.6, uniform_non_iid=0.6, clip_norm=0.5, rate=0.15, batch=10
    ),
    "cifar": Study(
        data="CIFAR-10", network="colour_cnn", noise_max=0.3, uniform_non_iid=1.0, clip_norm=1.0, rate=0.1, batch=10
    ),
}


@cache
def facebook(data: Path | None) -> games.Network:
    """Loaded once in a process."""
    return games.load_network(data)


def clusters(study: Study, network: games.Network, closeness: Floats, non_iid: Floats, seed: int) -> Formation:
    """Clusters that devices form in turn from random ones, as many as two in five devices."""
    graph = TrustGraph.from_ties(network.size, network.ties[:, 0], network.ties[:, 1], closeness)
    game = Game(graph, non_iid, quality=QualityModel(noise_max=study.noise_max))
    start = games.random_start(network.size, 2 * network.size // 5, np.random.default_rng([seed, 3]))
    return form(game, start, "sweep", restarts=0, search=False)


def learned(
    study: Study, cell: Cell, seed: int, data: Path | None, non_iid: Floats | None, noise: Floats, weights: Floats
) -> list[tuple[float, float]]:
    """(accuracy, loss) after each round; without noise and γ this is averaging in the clear over even data."""
    from coterie_lab import federations as fed  # torch is slow to import, and `lab list` needs none of it
    from coterie_lab.cohorts import Lesson
    from coterie_lab.images import image_set

    images, devices = image_set(study.data, data, int(cell["images"]), TEST_IMAGES), len(noise)
    module = fed.colour_cnn() if study.network == "colour_cnn" else fed.small_cnn()
    cohort = fed.dealt(images, non_iid, devices, np.random.default_rng([seed, 4]))
    combine = (
        fed.clear_mean(weights)
        if non_iid is None and not noise.any()
        else fed.private_mean(noise, weights, study.clip_norm, seed)
    )
    federation = fed.Federation(images, cohort, module, Lesson(study.rate, study.batch))
    return [(score.accuracy, score.loss) for score in federation.learn(int(cell["rounds"]), seed, combine)]


def drawn(cell: Cell, seed: int, data: Path | None) -> tuple[games.Network, Floats]:
    """Participants, tied as in the Facebook network, and their γ."""
    random, devices = np.random.default_rng(seed), int(cell["devices"])
    network = games.sample(facebook(data), "breadth first", devices, random)
    return network, random.uniform(*games.NON_IID, devices)


def tied(network: games.Network, level: str, seed: int) -> tuple[games.Network, Floats]:
    """The network with its closeness by level of social effects; "none" leaves no tie."""
    if level == "none":
        return games.Network(network.size, network.ties[:0], network.label), np.zeros(0)
    low, high = games.CLOSENESS[cast(games.Effect, level)]
    return network, np.random.default_rng([seed, 5]).uniform(low, high, len(network.ties))


# --- trials -----------------------------------------------------------------------------------------------------------


def by_participants(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 9 and 12: accuracy of averaging without noise on even data, of clusters, and of the same noise on all."""
    study, devices = STUDIES[str(cell["study"])], int(cell["devices"])
    network, non_iid = drawn(cell, seed, data)
    result = clusters(study, *tied(network, "strong", seed), non_iid, seed)
    nothing, ones = np.zeros(devices), np.ones(devices)
    ends = {
        "uniform": learned(
            study,
            cell,
            seed=seed,
            data=data,
            non_iid=np.full(devices, study.uniform_non_iid),
            noise=ones * study.noise_max,
            weights=ones,
        ),
        "SCFL": learned(study, cell, seed=seed, data=data, non_iid=non_iid, noise=result.noise, weights=result.quality),
        "baseline": learned(study, cell, seed=seed, data=data, non_iid=None, noise=nothing, weights=ones),
    }
    return [Reading("accuracy", name, float(devices), scores[-1][0]) for name, scores in ends.items()]


def by_trust(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 8 and 11: mean noise and accuracy where all ties are equally close."""
    study, devices, closeness = STUDIES[str(cell["study"])], int(cell["devices"]), float(cell["closeness"])
    network, non_iid = drawn(cell, seed, data)
    if closeness == 0.0:  # the uniform scheme, which no trust changes
        noise, weights, name = np.full(devices, study.noise_max), np.ones(devices), "uniform"
        non_iid = np.full(devices, study.uniform_non_iid)
    else:
        result = clusters(study, network, np.full(len(network.ties), closeness), non_iid, seed)
        noise, weights, name = result.noise, result.quality, "SCFL"
    accuracy = learned(study, cell, seed=seed, data=data, non_iid=non_iid, noise=noise, weights=weights)[-1][0]
    places = (closeness,) if name == "SCFL" else CLOSENESSES
    return [
        reading
        for x in places
        for reading in (Reading("noise", name, x, float(noise.mean())), Reading("accuracy", name, x, accuracy))
    ]


def by_effect(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 10 and 13: accuracy round by round under strong, weak and no social effects."""
    study, level = STUDIES[str(cell["study"])], str(cell["effect"])
    network, non_iid = drawn(cell, seed, data)
    result = clusters(study, *tied(network, level, seed), non_iid, seed)
    scores = learned(study, cell, seed=seed, data=data, non_iid=non_iid, noise=result.noise, weights=result.quality)
    return [
        *(Reading("accuracy", level, float(number), accuracy) for number, (accuracy, _) in enumerate(scores, 1)),
        Reading("accuracy at the end", level, NOWHERE, scores[-1][0]),
    ]


def by_noise(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 4 to 7: loss by noise and by γ, with the same noise and γ for all; and how well (13) fits all of them."""
    study, devices, rows = STUDIES[str(cell["study"])], int(cell["devices"]), []
    ones = np.ones(devices)
    for non_iid in GAMMAS:
        for noise in NOISES:
            accuracy, loss = learned(
                study, cell, seed=seed, data=data, non_iid=ones * non_iid, noise=ones * noise, weights=ones
            )[-1]
            rows.append(Measurement(noise, non_iid, loss, 100.0 * accuracy))
    fitted = refit(rows)
    spread = float(np.std([row.loss for row in rows]))
    by_both = [Reading("loss by noise", f"γ = {row.non_iid:g}", row.noise, row.loss) for row in rows]
    by_both += [Reading("loss by γ", f"σ = {row.noise:g}", row.non_iid, row.loss) for row in rows]
    lowest = {(row.noise, row.non_iid): row.loss for row in rows}
    return [
        *by_both,
        Reading("unexplained", "by (13)", NOWHERE, fitted.loss_rmse / spread),
        Reading("loss added", "by noise", NOWHERE, lowest[NOISES[-1], GAMMAS[-1]] - lowest[NOISES[0], GAMMAS[-1]]),
        Reading("loss added", "by γ", NOWHERE, lowest[NOISES[0], GAMMAS[0]] - lowest[NOISES[0], GAMMAS[-1]]),
    ]


def by_payoff(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 15: mean payoff by number of participants and level of social effects."""
    study, level, devices = STUDIES["mnist"], str(cell["effect"]), int(cell["devices"])
    network, non_iid = drawn(cell, seed, data)
    result = clusters(study, *tied(network, level, seed), non_iid, seed)
    return [Reading("payoff", level, float(devices), float(result.payoff.mean()))]


def degrees(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 3: how many ties nodes have; the seed draws half of them, to see whether it matters whom one asks."""
    network = facebook(data)
    counts = np.bincount(network.ties.ravel(), minlength=network.size)
    half = np.random.default_rng(seed).choice(counts, network.size // 2, replace=False)
    return [
        *(Reading("nodes with more ties", "Facebook", float(x), float(np.mean(half > x))) for x in TIES),
        Reading("largest over mean", "Facebook", NOWHERE, float(half.max() / half.mean())),
    ]


# --- the experiments --------------------------------------------------------------------------------------------------

CLOSENESSES = (0.1, 0.3, 0.5, 0.7, 0.9)
NOISES, GAMMAS = (0.05, 0.2, 0.6), (0.05, 0.6, 20.0)
TIES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
QUICK = {"mnist": {"images": 6_000, "rounds": 8}, "cifar": {"images": 5_000, "rounds": 20}}
FULL = {"mnist": {"images": 60_000, "rounds": 30}, "cifar": {"images": 50_000, "rounds": 100}}
KERNEL = "looped"
NEEDS = {"mnist": ("MNIST", "Facebook ego network"), "cifar": ("CIFAR-10", "Facebook ego network")}
SETTING = (
    "Participants of the Facebook network, chosen breadth first, γ uniform on [0.05, 20]; strong ties have a closeness "
    "uniform on [0.7, 1], weak ones on [0, 0.7]; α_th = 0.7, θ1 = 100, θ2 = 1, δ = 1e-6, noise by the paper's (9)."
)
TRAINING = {
    "mnist": "MNIST, a CNN of 4 layers (8,474 parameters), σ_max = 0.6, clip norm 0.5, rate 0.15, batches of 10, one "
    "epoch; quick: 6,000 images, 8 rounds; full: all, 30 rounds.",
    "cifar": "CIFAR-10, a CNN of 5 layers (12,266 parameters), σ_max = 0.3, clip norm 1, rate 0.1, batches of 10, one "
    "epoch; quick: 5,000 images, 20 rounds; full: all, 100 rounds.",
}
DEVIATIONS = (
    "The widths of its networks are not told; ours are small, because noise of this scale drowns large ones.",
    "Noise is the device's own: σ times the clip norm on every number of a change whose whole norm is clipped.",
    "Rate and batch fit the fewer images that a device has here; the paper's 0.05 and 64 learn nothing of them.",
    "The text samples nodes at random; such samples hardly have ties, so connected ones are taken.",
)


def _cells(study: str, quick: bool, devices: tuple[int, ...], **beside: tuple[float | str, ...]) -> tuple[Cell, ...]:
    size = (QUICK if quick else FULL)[study]
    cells: list[dict[str, str | int | float | bool]] = [{"study": study, "devices": n, **size} for n in devices]
    for name, values in beside.items():
        cells = [{**cell, name: value} for cell in cells for value in values]
    return tuple(cells)


def _learning(
    name: str,
    title: str,
    shows: tuple[str, str],
    trial: Callable[[Cell, int, Path | None], list[Reading]],
    quick: Callable[[str], tuple[Cell, ...]],
    full: Callable[[str], tuple[Cell, ...]],
    seconds: tuple[float, float],
    claims: tuple[Claim, ...],
    plots: tuple[Plot, ...],
) -> tuple[Experiment, ...]:
    """The same experiment on both data sets; `seconds` are those of a quick trial's round, and of a full trial."""
    return tuple(
        Experiment(
            name=f"scfl-{name}-{study}",
            paper="scfl",
            title=f"{title}, {STUDIES[study].data}",
            shows=shown,
            setting=f"{SETTING} {TRAINING[study]}",
            trial=trial,
            quick=Effort(quick(study), 3, seconds[0] * QUICK[study]["rounds"]),
            full=Effort(full(study), 5, seconds[1]),
            claims=claims,
            plots=plots,
            deviations=DEVIATIONS,
            needs=NEEDS[study],
            kernel=KERNEL,
        )
        for study, shown in zip(STUDIES, shows, strict=True)
    )


EXPERIMENTS = (
    Experiment(
        name="scfl-degrees",
        paper="scfl",
        title="Ties of the Facebook network",
        shows="Figure 3",
        setting="4,039 nodes, 88,234 ties; every seed asks another half of the nodes.",
        trial=degrees,
        quick=Effort(({},), 3, 1.0),
        full=Effort(({},), 20, 1.0),
        claims=(
            AtLeast("few nodes have very many ties: some of ten times the mean", "largest over mean", "Facebook", 10.0),
            AtMost(
                "… and most have few: at most half of them more than 50", "nodes with more ties", "Facebook", 0.5, 50.0
            ),
        ),
        plots=(Plot("nodes with more ties", "ties", "share of nodes with more", log_x=True),),
        needs=("Facebook ego network",),
    ),
    *_learning(
        "participants",
        title="Accuracy by number of participants",
        shows=("Figure 9", "Figure 12"),
        trial=by_participants,
        quick=lambda study: _cells(study, True, (50, 150, 250)),
        full=lambda study: _cells(study, False, (50, 100, 150, 200, 250)),
        seconds=(2.5, 2_000.0),
        claims=(
            Ordered(
                "SCFL between uniform noise and the baseline for every N", "accuracy", ("uniform", "SCFL", "baseline")
            ),
            Ordered("… above uniform noise", "accuracy", ("uniform", "SCFL")),
            Monotone("accuracy of SCFL and the baseline falls with N", "accuracy", ("SCFL", "baseline"), "falls"),
            Monotone("that of uniform noise rises with N", "accuracy", ("uniform",), "rises"),
        ),
        plots=(Plot("accuracy", "participants", "test accuracy"),),
    ),
    *_learning(
        "trust",
        title="Noise and accuracy by trust",
        shows=("Figure 8", "Figure 11"),
        trial=by_trust,
        quick=lambda study: _cells(study, True, (100,), closeness=(0.0, *CLOSENESSES)),
        full=lambda study: _cells(study, False, (100,), closeness=(0.0, *(k / 10 for k in range(1, 11)))),
        seconds=(1.0, 1_000.0),
        claims=(
            Monotone("noise falls as trust grows", "noise", ("SCFL",), "falls"),
            Monotone("accuracy rises as trust grows", "accuracy", ("SCFL",), "rises"),
            Ordered("accuracy is above that of uniform noise at every trust", "accuracy", ("uniform", "SCFL")),
        ),
        plots=(
            Plot("noise", "closeness of all ties", "mean noise multiplier σ"),
            Plot("accuracy", "closeness of all ties", "test accuracy"),
        ),
    ),
    *_learning(
        "effects",
        title="Accuracy by level of social effects",
        shows=("Figure 10", "Figure 13"),
        trial=by_effect,
        quick=lambda study: _cells(study, True, (100,), effect=LEVELS),
        full=lambda study: _cells(study, False, (100,), effect=LEVELS),
        seconds=(1.0, 1_000.0),
        claims=(
            Ordered("strong effects end above none", "accuracy at the end", ("none", "strong")),
            Ordered("strong effects end above weak ones", "accuracy at the end", ("weak", "strong")),
            Ordered("weak effects end above none", "accuracy at the end", ("none", "weak")),
        ),
        plots=(Plot("accuracy", "round", "test accuracy"),),
    ),
    Experiment(
        name="scfl-loss",
        paper="scfl",
        title="Loss by noise and by how uneven data is",
        shows="Figures 4 to 7",
        setting=f"100 devices with the same noise and the same γ. {TRAINING['mnist']}",
        trial=by_noise,
        quick=Effort(_cells("mnist", True, (100,)), 3, 60.0),
        full=Effort(_cells("mnist", False, (100,)), 5, 9_000.0),
        claims=(
            Monotone("loss rises with noise (Figs 4, 5)", "loss by noise", ("γ = 20", "γ = 0.6"), "rises"),
            Monotone("loss falls as data gets more even (Fig 6)", "loss by γ", ("σ = 0.05",), "falls"),
            AtMost(
                "(13) leaves at most a quarter of the losses' spread unexplained (Fig 7)",
                "unexplained",
                "by (13)",
                0.25,
            ),
            Ordered("noise costs more than uneven data (Fig 7)", "loss added", ("by γ", "by noise")),
        ),
        plots=(
            Plot("loss by noise", "noise multiplier σ", "test loss"),
            Plot("loss by γ", "γ of the Dirichlet", "test loss", log_x=True),
        ),
        deviations=(
            *DEVIATIONS[:3],
            "Three noises and three γ; (13) is fitted by the service that tasks are refitted by.",
        ),
        needs=("MNIST",),
        kernel=KERNEL,
    ),
    Experiment(
        name="scfl-payoffs",
        paper="scfl",
        title="Payoff by participants and level of social effects",
        shows="Figure 15",
        setting=f"{SETTING} ω = 0.8, λ_p = 0.52, λ_c = 1.2.",
        trial=by_payoff,
        quick=Effort(_cells("mnist", True, (50, 150, 250), effect=LEVELS), 10, 0.2),
        full=Effort(_cells("mnist", False, (50, 100, 150, 200, 250), effect=LEVELS), 20, 0.2),
        claims=(
            Ordered("stronger effects pay more: none, weak, strong", "payoff", LEVELS),
            Monotone("more participants pay more under strong effects", "payoff", ("strong",), "rises"),
            Monotone("… and under weak ones", "payoff", ("weak",), "rises"),
        ),
        plots=(Plot("payoff", "participants", "mean payoff per device"),),
        deviations=DEVIATIONS[3:],
        needs=("Facebook ego network",),
    ),
)
