"""[MPPFL] Multi-Hop Privacy Propagation: accuracy with the budgets that each mechanism buys, Tables 1 and 2.

Budgets are the pricing service's own; gradients are clipped example by example and noised by the device's own code.
Mechanisms differ in nothing but their budgets.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie_lab.claims import AtLeast, AtMost, Monotone, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.market import ROUNDS, draw_market
from coterie_lab.market_baselines import compare
from coterie_lab.readings import Reading

Floats = NDArray[np.float64]
NOWHERE = float("nan")
CLIP, RATE, MOMENTUM = 1.0, 0.3, 0.9
MECHANISMS = ("agnostic", "fixed", "proxy", "market")
SPLITS = ("IID", "Dirichlet 0.6", "Dirichlet 0.3")
GAMMAS = {"IID": None, "Dirichlet 0.6": 0.6, "Dirichlet 0.3": 0.3}
TEST_IMAGES = 2_000


def trained(
    data_set: str, data: Path | None, budgets: Floats, images_each: int, split: str, rounds: int, seed: int
) -> list[float]:
    """Test accuracy after each round of one noised full-batch gradient per device, budgets spread over the rounds."""
    import torch
    from torch.nn.functional import cross_entropy

    from coterie.privacy.clipping import clipped_gradients
    from coterie.privacy.grid import noised_query
    from coterie.privacy.simulation import SeededStream
    from coterie_lab import federations as fed
    from coterie_lab.cohorts import Lesson, parameters_of
    from coterie_lab.images import image_set

    devices, gamma = budgets.shape[1], GAMMAS[split]
    images = image_set(data_set, data, images_each * devices, TEST_IMAGES)
    module = fed.colour_cnn() if data_set == "CIFAR-10" else fed.small_cnn()
    non_iid = None if gamma is None else np.full(devices, gamma)
    federation = fed.Federation(
        images, fed.dealt(images, non_iid, devices, np.random.default_rng([seed, 6])), module, Lesson(RATE, 1)
    )
    model, speed, scores = parameters_of(module), torch.zeros(()), []
    for number in range(rounds):
        torch.nn.utils.vector_to_parameters(model, module.parameters())
        total = np.zeros(len(model))
        for device, places in enumerate(federation.cohort.shares):
            rho = float(budgets[number * len(budgets) // rounds, device])
            result = clipped_gradients(module, cross_entropy, images.train[places], images.train_labels[places], CLIP)
            flat = torch.cat([item.reshape(-1) for item in result.total.values()]).numpy().astype(np.float64)
            # One example replaced moves the sum by 2S; ρ = (2S)²/(2σ²) makes σ/(2S) = 1/√(2ρ). [MPPFL] Prop. 1.
            stream = SeededStream("mppfl", seed, number, device)
            total += noised_query(flat, 2.0 * CLIP, 1.0 / math.sqrt(2.0 * rho), stream) / len(places)
        speed = MOMENTUM * speed + torch.from_numpy((total / devices).astype(np.float32))
        model = model - RATE * speed
        scores.append(federation.score(model).accuracy)
    return scores


def bought(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Every mechanism's accuracy on one network and one way of dealing the images."""
    devices, split = int(cell["devices"]), str(cell["split"])
    runs = compare(
        draw_market(devices, np.random.default_rng([seed, devices])), ROUNDS, "common", np.random.default_rng(seed)
    )
    result = []
    for name in MECHANISMS:
        curve = trained(
            str(cell["data"]),
            data,
            budgets=runs[name].budgets,
            images_each=int(cell["images"]),
            split=split,
            rounds=int(cell["rounds"]),
            seed=seed,
        )
        place = float(SPLITS.index(split))
        result += [
            Reading("accuracy by split", name, place, 100.0 * curve[-1]),
            Reading(f"accuracy, {split}", name, NOWHERE, 100.0 * curve[-1]),
            *(
                Reading(f"accuracy by round, {split}", name, float(t), 100.0 * score)
                for t, score in enumerate(curve, 1)
            ),
        ]
    by_name = {reading.series: reading.value for reading in result if reading.figure == f"accuracy, {split}"}
    return [
        *result,
        Reading("points behind social-agnostic", split, NOWHERE, by_name["agnostic"] - by_name["market"]),
        Reading("points ahead of the proxy", split, NOWHERE, by_name["market"] - by_name["proxy"]),
    ]


PAPER = {
    "Fashion-MNIST": {
        "agnostic, [MPPFL]": (89.12, 88.25, 87.91),
        "fixed (DP-FedAvg), [MPPFL]": (88.89, 87.69, 87.05),
        "SARDA, [MPPFL]": (83.77, 80.89, 77.15),
        "market, [MPPFL]": (89.05, 88.09, 87.78),
    },
    "CIFAR-10": {
        "agnostic, [MPPFL]": (66.49, 64.47, 62.44),
        "fixed (DP-FedAvg), [MPPFL]": (65.35, 61.37, 59.84),
        "SARDA, [MPPFL]": (53.54, 46.37, 41.19),
        "market, [MPPFL]": (66.29, 64.07, 62.42),
    },
}
"""Table 1, N = 20: IID, Dirichlet 0.6 and 0.3."""


def _cells(data_set: str, splits: tuple[str, ...], images: int, rounds: int) -> tuple[Cell, ...]:
    return tuple(
        {"data": data_set, "devices": 20, "split": split, "images": images, "rounds": rounds} for split in splits
    )


EXPERIMENTS = tuple(
    Experiment(
        name=f"mppfl-accuracy-{name}",
        paper="mppfl",
        title=f"Accuracy with the budgets bought, {data_set}",
        shows="Table 1 and, on another data set, Figures 13 to 15",
        setting=f"20 devices, {network}; every round each device gives one full-batch gradient, each example "
        "clipped to 1, "
        "with the noise of its ρ; common prices; momentum 0.9, rate 0.3. Quick: 100 images each, so few that noise "
        "matters, 15 rounds; full: 1,000 images, 60 rounds. Networks and prices as in `mppfl-sizes`.",
        trial=bought,
        quick=Effort(_cells(data_set, ("IID", "Dirichlet 0.3"), 100, 15), 3, 25.0),
        full=Effort(_cells(data_set, SPLITS, 1_000, 60), 5, 1_000.0),
        claims=(
            *(
                AtMost(
                    f"the market is at most 1 point behind social-agnostic devices, {split} (printed: 0.02 to 0.2)",
                    "points behind social-agnostic",
                    split,
                    1.0,
                )
                for split in ("IID", "Dirichlet 0.3")
            ),
            *(
                AtLeast(
                    f"the market is at least 4 points above the proxy for SARDA, {split} (printed: 5 to 21)",
                    "points ahead of the proxy",
                    split,
                    4.0,
                )
                for split in ("IID", "Dirichlet 0.3")
            ),
            Monotone("accuracy rises with the rounds (IID)", "accuracy by round, IID", ("market", "agnostic"), "rises"),
            Ordered("the market is above the proxy, IID", "accuracy, IID", ("proxy", "market")),
        ),
        plots=(
            Plot(
                "accuracy by split",
                "",
                "test accuracy, %",
                {
                    series: tuple((float(place), value) for place, value in enumerate(values))
                    for series, values in PAPER[data_set].items()
                },
                groups=SPLITS,
            ),
            Plot("accuracy by round, Dirichlet 0.3", "round", "test accuracy, %"),
        ),
        deviations=(
            "SARDA is not defined by the texts: a one-hop proxy stands in its place.",
            "CINIC-10, CIFAR-100 and SVHN are not among the sets of `lab data`.",
            "Far fewer images and rounds than the paper's, and a small network: compare orders, not levels.",
        ),
        needs=(data_set,),
    )
    for name, data_set, network in (
        ("fashion", "Fashion-MNIST", "a CNN of 4 layers (8,474 parameters)"),
        ("cifar", "CIFAR-10", "a CNN of 5 layers (12,266 parameters)"),
    )
)
