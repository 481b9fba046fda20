"""Topologies to compare a planned mesh with: the social graph itself, a ring, a random regular expander, everything.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §IV-A and §IV-B.
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from services.topology.domain.betta import MeshPlan, evaluate_links
from services.topology.domain.mesh_network import BadMeshInput, MeshNetwork, MeshRules

Links = list[tuple[int, int]]


def social_links(network: MeshNetwork) -> Links:
    """Every trusted, possible link: what DABMD and PDOO train on."""
    usable = network.trusted & np.isfinite(network.link_seconds)
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(usable))]


def ring_links(devices: int) -> Links:
    """0–1–…–0; one link for two devices, none for one."""
    return sorted({(min(i, j), max(i, j)) for i in range(devices) if (j := (i + 1) % devices) != i})


def complete_links(devices: int) -> Links:
    """Every pair."""
    return [(i, j) for i in range(devices) for j in range(i + 1, devices)]


def expander_links(devices: int, degree: int, rng: np.random.Generator) -> Links:
    """A connected random regular graph, an expander with high probability; the complete graph where it is too small."""
    if degree < 2 or (degree * devices) % 2:
        raise BadMeshInput(f"no {degree}-regular expander on {devices} devices; the degree is at least 2, times V even")
    if devices <= degree + 1:
        return complete_links(devices)
    while True:
        graph = nx.random_regular_graph(degree, devices, seed=int(rng.integers(2**31)))
        if nx.is_connected(graph):
            return sorted((min(i, j), max(i, j)) for i, j in graph.edges)


def baseline_plans(
    network: MeshNetwork, rules: MeshRules, rng: np.random.Generator, *, expander_degree: int = 4
) -> dict[str, MeshPlan]:
    """Each baseline evaluated as BeTTa evaluates its own topologies; the social graph needs no noisy device."""
    links = {
        "social": social_links(network),
        "ring": ring_links(network.devices),
        "expander": expander_links(network.devices, expander_degree, rng),
        "complete": complete_links(network.devices),
    }
    return {name: evaluate_links(network, rules, pairs) for name, pairs in links.items()}
