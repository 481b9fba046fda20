"""[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things: Figures 1, 4–6, Tables I–II.

Networks are connected samples of Santander's devices (`coterie_lab.networks`); plans are the topology service's own,
training is the device's own step, with the provable noise and with the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast, get_args

import numpy as np

from coterie.learning.mixing import Sensitivity
from coterie_lab.betta_baselines import expander_links
from coterie_lab.claims import AtLeast, AtMost, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.experiments.betta import CITY, NOWHERE, SANTANDER, images, network_of
from coterie_lab.mesh import Contender, accuracies, contenders, courses, mean_loss, planned
from coterie_lab.networks import figures_of
from coterie_lab.readings import Reading
from services.topology.domain.betta import evaluate_links
from services.topology.domain.betta_network import MeshNetwork, MeshRules
from services.topology.domain.plain_links import complete_links, ring_links, social_links

DEVICES, FIXED_BATCH = 16, 64
NOISE: dict[str, str] = {"clipped": "provable noise", "paper": "the paper's noise"}
SCALES: tuple[str, ...] = get_args(Sensitivity)
NOISY = (0, 4, 8, 12, 16)


def spread(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 1(a): the loss with ever more noisy devices, who may talk to one another whether they are tied or not."""
    sensitivity, rounds = cast(Sensitivity, cell["noise"]), int(cell["rounds"])
    network, name = network_of(SANTANDER, DEVICES, seed, data), NOISE[str(cell["noise"])]
    order = np.random.default_rng([seed, 11]).permutation(DEVICES)
    losses = {}
    for count in NOISY:
        chosen = np.sort(order[:count])
        links = sorted({*social_links(network), *((int(i), int(j)) for i in chosen for j in chosen if i < j)})
        who = replace(_even(network, links, "open"), noisy=frozenset(chosen.tolist()))
        losses[count] = _last(
            mean_loss(states, images(data))
            for states in islice(courses(who, images(data), seed, sensitivity=sensitivity), rounds)
        )
    return [
        *(Reading("loss", name, float(count), loss) for count, loss in losses.items()),
        Reading("won by some noisy devices", name, NOWHERE, losses[0] - min(losses[n] for n in NOISY[1:-1])),
        Reading("lost by noise of all", name, NOWHERE, losses[NOISY[-1]] - losses[0]),
    ]


def mixed(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 1(b): the loss in topologies of other hitting times, no device noisy."""
    network = network_of(SANTANDER, DEVICES, seed, data)
    expander = expander_links(DEVICES, 4, np.random.default_rng([seed, 13]))
    known = {
        "complete": complete_links(DEVICES),
        "expander": expander,
        "social graph": social_links(network),
        "ring": ring_links(DEVICES),
    }
    result = []
    for name, links in known.items():
        who = replace(_even(network, links, name), noisy=frozenset())
        hitting = evaluate_links(network, MeshRules(), links).figures.hitting_time
        course = courses(who, images(data), seed)
        loss = _last(mean_loss(states, images(data)) for states in islice(course, int(cell["rounds"])))
        result += [Reading("hitting time", name, NOWHERE, hitting), Reading("loss", name, NOWHERE, loss)]
    return result


def compared(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 4 to 6: accuracy by round, with the same batches for all or with each method's own."""
    sensitivity, own = cast(Sensitivity, cell["noise"]), bool(cell["own_batches"])
    network = network_of(SANTANDER, DEVICES, seed, data)
    figure = f"accuracy, {'own' if own else 'equal'} batches, {NOISE[sensitivity]}"
    links = expander_links(DEVICES, 4, np.random.default_rng([seed, 13]))
    rivals = [*contenders(network, "parallel"), planned("expander", evaluate_links(network, MeshRules(), links))]
    result = []
    for who in (rival for rival in rivals if rival.name != "social + MEP"):
        even = who if own else replace(who, batches=np.full(DEVICES, FIXED_BATCH))
        course = accuracies(even, images(data), seed, sensitivity=sensitivity)
        for number, value in enumerate(islice(course, int(cell["rounds"])), 1):
            result.append(Reading(figure, who.name, float(number), value))
        result.append(Reading(f"end of {figure}", who.name, NOWHERE, value))
    return result


TABLE_I, TABLE_II = (0.65, 0.68, 0.70, 0.72), (0.65, 0.70, 0.75, 0.80)
BATCH_SECONDS, NETS, MOST = 21.02, {"Net1": 0.15, "Net2": 9.5}, 120
"""Seconds a round computes in Table II, seconds a round communicates in its two networks, and rounds at most."""


def timed(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Tables I and II: rounds and seconds to accuracies, by batch size and by network, all devices equally fast."""
    size = int(cell["batch"])
    network = network_of(SANTANDER, DEVICES, seed, data)
    who = _even(network, social_links(network), "social graph", size)
    reached: dict[float, int] = {}
    targets = sorted({*TABLE_I, *TABLE_II})
    for number, accuracy in enumerate(islice(accuracies(who, images(data), seed), MOST), 1):
        reached.update({target: number for target in targets if accuracy >= target and target not in reached})
        if len(reached) == len(targets):
            break
    name, result = f"batches of {size}", []
    for target, number in reached.items():
        result.append(Reading("rounds", name, target, float(number)))
        if target in TABLE_I:
            result.append(Reading("seconds", name, target, number * BATCH_SECONDS * size / FIXED_BATCH))
        if size == FIXED_BATCH and target in TABLE_II:
            result += [Reading("communication", net, target, number * item) for net, item in NETS.items()]
    return result


def sampled(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Links, noisy devices and times of BeTTa's plan and of the social graph."""
    figures = figures_of(network_of(SANTANDER, int(cell["devices"]), seed, data))
    counts = ("social links", "plan's links", "noisy devices")
    return [
        Reading("links and devices" if name in counts else "seconds", name, NOWHERE, value)
        for name, value in figures.items()
    ]


def _even(network: MeshNetwork, links: list[tuple[int, int]], name: str, size: int = FIXED_BATCH) -> Contender:
    """These links with the same batch for all devices."""
    return replace(planned(name, evaluate_links(network, MeshRules(), links)), batches=np.full(DEVICES, size))


def _last(values: Iterator[float]) -> float:
    return list(values)[-1]


def _noised(rounds: int) -> tuple[Cell, ...]:
    return tuple({"noise": scale, "rounds": rounds} for scale in SCALES)


def _compared(rounds: int) -> tuple[Cell, ...]:
    return tuple({"noise": scale, "own_batches": own, "rounds": rounds} for own in (False, True) for scale in SCALES)


SETTING = (
    "16 of Santander's devices, tied by ownership, co-location and meetings, who train softmax regression on data that "
    "arrives during training (300 at first, 10 to 30 more a round), ε = 1. "
)
RELATIONS = "The authors' adjacency matrices are not published with the data; relations are derived by their rules."
BOTH = "Beside the paper's noise, which proves nothing, stands the provable one with clipped gradients."
EXPERIMENTS = (
    Experiment(
        name="betta-noisy",
        paper="betta",
        title="Loss by number of noisy devices",
        shows="Figure 1(a)",
        setting=SETTING + "Noisy devices, drawn by lot, may talk to one another whether tied or not; batches of 64.",
        trial=spread,
        quick=Effort(_noised(20), 5, 3.0),
        full=Effort(_noised(50), 10, 8.0),
        claims=tuple(
            claim
            for name in NOISE.values()
            for claim in (
                AtLeast(f"some noisy devices are better than none ({name})", "won by some noisy devices", name, 0.0),
                AtLeast(f"noise of all is worse than none ({name})", "lost by noise of all", name, 0.0),
            )
        ),
        plots=(Plot("loss", "noisy devices of 16", "mean test loss, nats", log_y=True),),
        needs=(CITY,),
        uses=("MNIST",),
        deviations=(RELATIONS, BOTH, "Which links noise opened is not said: all among the noisy devices."),
    ),
    Experiment(
        name="betta-hitting",
        paper="betta",
        title="Loss by hitting time",
        shows="Figure 1(b)",
        setting=SETTING + "Four topologies, no device noisy, batches of 64.",
        trial=mixed,
        quick=Effort(({"rounds": 20},), 5, 2.0),
        full=Effort(({"rounds": 50},), 10, 5.0),
        claims=(
            Ordered("a shorter hitting time, a smaller loss", "loss", ("complete", "expander", "ring")),
            AtMost("the shortest hitting time is 30", "hitting time", "complete", 30.01),
        ),
        plots=(Plot("loss", "", "mean test loss, nats"), Plot("hitting time", "", "rounds")),
        needs=(CITY,),
        uses=("MNIST",),
        deviations=(RELATIONS,),
    ),
    Experiment(
        name="betta-rounds",
        paper="betta",
        title="Accuracy by round",
        shows="Figures 4 to 6",
        setting=SETTING
        + "BeTTa's plan with and without a cap of degrees, a 4-regular expander, and the social graph as "
        "DABMD-like (no noise) and PDOO-like (all devices noisy); equal batches of 64 (Figures 4 and 5) or each "
        "method's own (Figure 6).",
        trial=compared,
        quick=Effort(_compared(20), 5, 4.0),
        full=Effort(_compared(60), 10, 12.0),
        claims=tuple(
            claim
            for batches in ("equal", "own")
            for name in NOISE.values()
            for figure in (f"end of accuracy, {batches} batches, {name}",)
            for claim in (
                Ordered(
                    f"BeTTa ends above both ({batches} batches, {name})", figure, ("PDOO-like", "DABMD-like", "BeTTa")
                ),
                Ordered(f"BeTTa ends above the expander ({batches} batches, {name})", figure, ("expander", "BeTTa")),
            )
        ),
        plots=tuple(
            Plot(f"accuracy, {batches} batches, {name}", "round", "mean test accuracy")
            for batches in ("equal", "own")
            for name in NOISE.values()
        ),
        needs=(CITY,),
        uses=("MNIST",),
        deviations=(RELATIONS, BOTH, "Baselines are rebuilt from their description."),
    ),
    Experiment(
        name="betta-batches",
        paper="betta",
        title="Batch sizes and radios",
        shows="Tables I and II",
        setting=SETTING
        + "The social graph, no device noisy, all boards alike: 21 s a batch of 64, in proportion for 256. A round "
        "communicates for 0.15 s in Net1 and 9.5 s in Net2.",
        trial=timed,
        quick=Effort(({"batch": 64}, {"batch": 256}), 5, 1.5),
        full=Effort(({"batch": 64}, {"batch": 256}), 10, 1.5),
        claims=(
            Ordered("larger batches need no more rounds", "rounds", ("batches of 256", "batches of 64")),
            Ordered("larger batches are there no later (Table I)", "seconds", ("batches of 256", "batches of 64")),
            AtLeast("slow links cost 300 s more at 70 % (Table II)", "communication", "Net2", 300.0, 0.70),
            AtMost("fast links cost at most 22 s at 80 % (Table II)", "communication", "Net1", 22.0, 0.80),
        ),
        plots=(
            Plot(
                "seconds",
                "accuracy",
                "simulated seconds",
                {
                    "256, [BETTA]": tuple(zip(TABLE_I, (742.2, 839.8, 904.4, 1031.7), strict=True)),
                    "64, [BETTA]": tuple(zip(TABLE_I, (753.1, 861.5, 1003.8, 1254.4), strict=True)),
                },
                log_y=True,
            ),
            Plot(
                "rounds",
                "accuracy",
                "rounds",
                {"[BETTA]": tuple(zip(TABLE_II, (27.0, 33.0, 49.0, 92.0), strict=True))},
            ),
            Plot(
                "communication",
                "accuracy",
                "simulated seconds",
                {
                    "Net1, [BETTA]": ((0.70, 4.9), (0.75, 7.4), (0.80, 21.2)),
                    "Net2, [BETTA]": tuple(zip(TABLE_II, (256.5, 313.5, 465.5, 874.1), strict=True)),
                },
                log_y=True,
            ),
        ),
        needs=(CITY,),
        uses=("MNIST",),
        deviations=(RELATIONS, "Seconds of a batch are not given for 256; ours are in proportion to its size."),
    ),
    Experiment(
        name="betta-networks",
        paper="betta",
        title="Plans for networks of a real city",
        shows="§IV, networks",
        setting=f"Connected samples of {DEVICES} of Santander's devices, ε = 1, no degree cap.",
        trial=sampled,
        quick=Effort(({"devices": DEVICES},), 4, 1.0),
        full=Effort(({"devices": DEVICES},), 10, 1.0),
        claims=(
            Ordered(
                "BeTTa's plan needs less time than the social graph", "seconds", ("pseudo time, s", "social graph's, s")
            ),
        ),
        plots=(Plot("links and devices", "", "number"), Plot("seconds", "", "simulated seconds", log_y=True)),
        needs=(CITY,),
        deviations=(RELATIONS,),
    ),
)
