"""Social networks and the cluster formation games played on them: the Facebook graph, samples of it, larger graphs with
its degrees, and closeness by social effect. [SCFL] §VI.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import networkx as nx
import numpy as np
import numpy.typing as npt

from services.topology.domain.coalition import Game, Partition
from services.trust.domain.graph import TrustGraph

Integers = npt.NDArray[np.int64]
Effect = Literal["strong", "weak"]
Sampling = Literal["breadth first", "snowball 3", "random walk", "random nodes"]
FACEBOOK = "facebook_combined.txt.gz"
NON_IID = (0.05, 20.0)
CLOSENESS: dict[Effect, tuple[float, float]] = {"strong": (0.7, 1.0), "weak": (0.0, 0.7)}


@dataclass(frozen=True, slots=True)
class Network:
    """An undirected graph: ties as rows (a, b) with a < b, and where it comes from."""

    size: int
    ties: Integers
    label: str

    def neighbours(self) -> list[Integers]:
        """Neighbours of every node, ascending."""
        both = np.concatenate((self.ties, self.ties[:, ::-1]))
        both = both[np.lexsort((both[:, 1], both[:, 0]))]
        ends = np.cumsum(np.bincount(both[:, 0], minlength=self.size))
        return [np.asarray(part) for part in np.split(both[:, 1], ends[:-1])]


def load_network(folder: Path | None) -> Network:
    """The Facebook ego network (McAuley & Leskovec 2012) from `folder`, or a synthetic one labelled as such."""
    if folder is not None and (Path(folder) / FACEBOOK).exists():
        with gzip.open(Path(folder) / FACEBOOK, "rt") as lines:
            ties = np.loadtxt(lines, dtype=np.int64)
        return Network(int(ties.max()) + 1, np.sort(ties, axis=1), "Facebook ego network")
    graph = nx.powerlaw_cluster_graph(4_039, 22, 0.6, seed=1)
    return Network(4_039, np.sort(np.array(graph.edges, dtype=np.int64), axis=1), "synthetic (power law, clustered)")


def grow(network: Network, size: int, random: np.random.Generator) -> Network:
    """A synthetic graph of `size` nodes whose degrees are drawn from the network's, tied locally on a ring.

    Node k gets a degree drawn from the network's and ties its stubs to nodes at distances drawn from a geometric law
    of the same scale, so that friends of friends tend to be friends; repeated and self ties are dropped.
    """
    degrees = np.bincount(network.ties.ravel(), minlength=network.size)
    wanted = np.minimum(random.choice(degrees, size), size - 1)
    sources = np.repeat(np.arange(size), (wanted + 1) // 2)
    reach = random.geometric(1.0 / np.maximum(2.0, wanted[sources]))
    targets = (sources + np.where(random.random(len(sources)) < 0.5, -reach, reach)) % size
    shortcuts = random.random(len(sources)) < 0.05
    targets[shortcuts] = random.integers(0, size, int(shortcuts.sum()))
    pairs = np.sort(np.stack((sources, targets), axis=1), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    return Network(size, pairs, f"synthetic with the degrees of: {network.label}")


def sample(network: Network, how: Sampling, size: int, random: np.random.Generator) -> Network:
    """The subgraph induced by `size` nodes chosen from a random first one."""
    around = network.neighbours()
    if how == "random nodes":
        chosen = random.choice(network.size, size, replace=False).tolist()
    elif how == "random walk":
        chosen = _walk(around, size, random)
    else:
        chosen = _spread(around, size, random, 3 if how == "snowball 3" else network.size)
    return induced(network, chosen, f"{how} sample of: {network.label}")


def induced(network: Network, nodes: list[int], label: str) -> Network:
    """The subgraph on `nodes`, renumbered in their order."""
    place = np.full(network.size, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    ties = place[network.ties]
    return Network(len(nodes), np.sort(ties[(ties >= 0).all(axis=1)], axis=1), label)


def play_on(network: Network, effect: Effect, random: np.random.Generator) -> Game:
    """The game on `network`: closeness uniform on [0.7, 1] (strong effects) or [0, 0.7] (weak), γ on [0.05, 20].

    [SCFL] §VI says strong ties lie above the threshold and weak ones are "randomly distributed within [0, α_th]";
    uniform is our reading of both.
    """
    low, high = CLOSENESS[effect]
    weights = random.uniform(low, high, len(network.ties))
    graph = TrustGraph.from_ties(network.size, network.ties[:, 0], network.ties[:, 1], weights)
    return Game(graph, random.uniform(*NON_IID, network.size))


def random_start(size: int, clusters: int, random: np.random.Generator) -> Partition:
    """`clusters` clusters, none empty, devices otherwise placed uniformly at random."""
    labels = np.concatenate((np.arange(clusters), random.integers(0, clusters, size - clusters)))
    random.shuffle(labels)
    return tuple(tuple(np.flatnonzero(labels == k).tolist()) for k in range(clusters))


def _spread(around: list[Integers], size: int, random: np.random.Generator, width: int) -> list[int]:
    """Breadth first from a random node, each node naming up to `width` new ones in random order."""
    while True:
        queue = [int(random.integers(len(around)))]
        seen = set(queue)
        for node in queue:
            fresh = [int(other) for other in random.permutation(around[node]) if int(other) not in seen]
            for other in fresh[: min(width, size - len(queue))]:
                seen.add(other)
                queue.append(other)
        if len(queue) == size:
            return queue


def _walk(around: list[Integers], size: int, random: np.random.Generator) -> list[int]:
    node = int(random.integers(len(around)))
    seen = {node: None}
    for _ in range(1_000 * size):
        if len(seen) == size:
            return list(seen)
        node = int(random.choice(around[node])) if len(around[node]) else int(random.integers(len(around)))
        seen.setdefault(node)
    return _walk(around, size, random)
