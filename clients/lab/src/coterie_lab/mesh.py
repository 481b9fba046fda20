"""BeTTa's contenders: generated networks, who trains how on them, and their accuracy round by round.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §IV. Links are not physically
slow here: seconds come from a simulated clock, the round time of the transfer model. Everything is seeded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from coterie.learning.mixing import MeshState, Sensitivity, Vector, noise_scale, softmax_gradient, step, step_size
from coterie_lab.betta_baselines import even_batches, round_seconds
from coterie_lab.mesh_data import Images
from services.topology.domain.betta import MeshPlan, batch_sizes, evaluate_links
from services.topology.domain.betta_fast import plan_mesh
from services.topology.domain.betta_network import MeshNetwork, MeshRules, Transfers
from services.topology.domain.plain_links import social_links

TARGETS = (0.65, 0.70, 0.75, 0.80)
GRAPHS = ("small world", "random", "hubs", "owner cliques")
BOARDS_SECONDS = (77.0, 32.0, 14.0)  # Raspberry Pi 2, 3, 4
BOARD_SHARES = (0.25, 0.5, 0.25)
WIFI_SECONDS, LORA_SECONDS, WIFI_METRES, SIDE_METRES = 0.004654, 8.96, 100.0, 300.0
CLIP = 20.0
MOST_ROUNDS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """One way to train: links and weights, who adds noise, batch sizes, and the seconds of one round."""

    name: str
    mixing: NDArray[np.float64]
    noisy: frozenset[int]
    batches: NDArray[np.int64]
    round_seconds: float


def social_graph(kind: str, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """A connected social graph of one of the four kinds; mean degree about 4."""
    seed = int(rng.integers(2**31))
    if kind == "small world":
        graph = nx.connected_watts_strogatz_graph(count, 4, 0.2, seed=seed)
    elif kind == "hubs":
        graph = nx.barabasi_albert_graph(count, 2, seed=seed)
    elif kind == "owner cliques":
        cliques = [(i, j) for i in range(count) for j in range(i + 1, count) if i // 4 == j // 4]
        return cliques + [(first - 1, first) for first in range(4, count, 4)]
    else:
        graph = nx.gnp_random_graph(count, 4.0 / count, seed=seed)
        parts = [sorted(part) for part in nx.connected_components(graph)]
        graph.add_edges_from((parts[0][0], part[0]) for part in parts[1:])
    return [(int(i), int(j)) for i, j in graph.edges]


def radio_network(kind: str, count: int, seed: int) -> MeshNetwork:
    """Devices dropped on a square: Wi-Fi within 100 m, LoRa beyond; boards drawn 1/4, 1/2, 1/4."""
    rng = np.random.default_rng([seed, count, GRAPHS.index(kind)])
    place = rng.random((count, 2)) * SIDE_METRES
    metres = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1))
    seconds = np.where(metres < WIFI_METRES, WIFI_SECONDS, LORA_SECONDS)
    boards = rng.choice(BOARDS_SECONDS, count, p=BOARD_SHARES)
    return MeshNetwork.build(count, social_graph(kind, count, rng), seconds, boards)


def contenders(network: MeshNetwork, transfers: Transfers, *, epsilon: float = 1.0) -> list[Contender]:
    """BeTTa with and without the degree cap, and the baselines on the social graph.

    DABMD-like: every device computes for as long as the slowest board needs, no noise. PDOO-like: basic batches,
    all devices noisy. `social + MEP` gives the social graph BeTTa's batches, to tell the two effects apart.
    """
    rules = MeshRules(epsilon=epsilon, transfers=transfers)
    cap = int(np.ceil(np.log2(network.devices))) + 1
    social = evaluate_links(network, rules, social_links(network))
    adjacency = social.figures.mixing > 0
    np.fill_diagonal(adjacency, False)
    basic = np.full(network.devices, rules.basic_batch)
    even = even_batches(network, rules)
    all_devices = frozenset(range(network.devices))
    no_device: frozenset[int] = frozenset()
    capped = MeshRules(epsilon=epsilon, transfers=transfers, max_degree=cap)

    def on_social(name: str, noisy: frozenset[int], batches: NDArray[np.int64]) -> Contender:
        seconds = round_seconds(network, adjacency, batches, rules)
        return Contender(name, social.figures.mixing, noisy, batches, seconds)

    return [
        planned("BeTTa", plan_mesh(network, rules)),
        planned("BeTTa capped", plan_mesh(network, capped)),
        on_social("DABMD-like", no_device, even),
        on_social("social + MEP", no_device, batch_sizes(network, rules, adjacency)),
        on_social("PDOO-like", all_devices, basic),
    ]


def planned(name: str, plan: MeshPlan) -> Contender:
    """A plan as a contender; MEP's batches fit into its round time."""
    return Contender(
        name, plan.figures.mixing, frozenset(plan.dp_devices), plan.batch_sizes, plan.figures.local_iterate
    )


def noised(parameters: Vector, scale: float, rng: np.random.Generator) -> Vector:
    """What is sent, with Laplace noise of this scale: a simulation's noise, which need not hide anything."""
    return parameters + rng.laplace(0.0, scale, parameters.shape) if scale > 0.0 else parameters.copy()


def rounds_to_targets(contender: Contender, images: Images, seed: int, *, epsilon: float = 1.0) -> dict[float, int]:
    """Rounds until the devices' mean test accuracy first reaches each target; targets never reached are left out."""
    reached: dict[float, int] = {}
    for number, accuracy in enumerate(accuracies(contender, images, seed, epsilon=epsilon), 1):
        for target in TARGETS:
            if accuracy >= target:
                reached.setdefault(target, number)
        if len(reached) == len(TARGETS) or number == MOST_ROUNDS:
            break
    return reached


def accuracies(
    contender: Contender, images: Images, seed: int, *, epsilon: float = 1.0, sensitivity: Sensitivity = "clipped"
) -> Iterator[float]:
    """The devices' mean test accuracy after each round, without end; see `courses`."""
    for states in courses(contender, images, seed, epsilon=epsilon, sensitivity=sensitivity):
        yield mean_accuracy(states, images)


def courses(
    contender: Contender, images: Images, seed: int, *, epsilon: float = 1.0, sensitivity: Sensitivity = "clipped"
) -> Iterator[list[MeshState]]:
    """Every device's state after each round, without end.

    ODLF-PDP (spec §6): softmax regression, η_t = 0.01·0.99^t, 300 samples at first and 10 to 30 more each round; noise
    of the provable scale with clipped gradients, or of the paper's, which proves nothing. The gradient is taken at what
    was sent: a noised device's own exact parameters would carry its last batch past the noise (docs/papers/betta.md).
    """
    rng = np.random.default_rng([seed, 7])
    count = len(contender.batches)
    shares = np.array_split(rng.permutation(len(images.train_labels)), count)
    held = np.full(count, 300)
    weights = [
        {int(j): float(contender.mixing[i, j]) for j in np.flatnonzero(contender.mixing[i]) if j != i}
        for i in range(count)
    ]
    states = [MeshState.start(np.zeros(images.classes * images.train.shape[1])) for _ in range(count)]
    bound = CLIP if sensitivity == "clipped" else None
    for number in itertools.count():
        eta = step_size(number)
        sent = []
        for i, state in enumerate(states):
            scale = 0.0
            if i in contender.noisy:
                scale = noise_scale(state, eta, epsilon, sensitivity=sensitivity, clip=bound)
            sent.append(noised(state.parameters, scale, rng))
        for i in range(count):
            size = min(int(contender.batches[i]), held[i], len(shares[i]))
            chosen = rng.choice(shares[i][: held[i]], size, replace=False)
            clip = bound if i in contender.noisy else None
            gradient = softmax_gradient(
                sent[i], images.train[chosen], images.train_labels[chosen], images.classes, clip=clip
            )
            received = {j: sent[j] for j in weights[i]}
            states[i] = step(
                states[i], sent[i], received=received, weights=weights[i], gradient=gradient, batch_size=size, step=eta
            )
        held += rng.integers(10, 31, count)
        yield states


def mean_accuracy(states: list[MeshState], images: Images) -> float:
    """Mean over devices of each one's own model on the test images."""
    return float((_scores(states, images).argmax(axis=2) == images.test_labels[:, None]).mean())


def mean_loss(states: list[MeshState], images: Images) -> float:
    """Mean over devices of each one's own model's cross-entropy on the test images, in nats."""
    scores = _scores(states, images)
    scores -= scores.max(axis=2, keepdims=True)
    right = np.take_along_axis(scores, images.test_labels[:, None, None], axis=2)[..., 0]
    return float((np.log(np.exp(scores).sum(axis=2)) - right).mean())


def _scores(states: list[MeshState], images: Images) -> NDArray[np.float64]:
    """(image, device, class)."""
    stack = np.concatenate([state.parameters.reshape(images.classes, -1) for state in states])
    return np.asarray(images.test @ stack.T).reshape(len(images.test), len(states), images.classes)
