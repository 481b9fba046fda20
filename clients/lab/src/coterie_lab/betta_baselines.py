"""What a planned mesh is compared with: a random regular expander, and batches as DABMD sizes them.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §IV-A and §IV-B.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.topology.domain.betta_network import BadMeshInput, MeshNetwork, MeshRules
from services.topology.domain.mixing import Bools
from services.topology.domain.plain_links import Links, complete_links

EXPANDER_DEGREE = 4


def expander_links(devices: int, degree: int, rng: np.random.Generator) -> Links:
    """A connected random regular graph, an expander with high probability; the complete graph where it is too small."""
    if degree < 2 or (degree * devices) % 2:
        raise BadMeshInput(f"no {degree}-regular expander on {devices} devices; the degree is at least 2, times V even")
    if devices <= degree + 1:
        return complete_links(devices)
    import networkx as nx

    while True:
        graph = nx.random_regular_graph(degree, devices, seed=int(rng.integers(2**31)))
        if nx.is_connected(graph):
            return sorted((min(i, j), max(i, j)) for i, j in graph.edges)


def even_batches(network: MeshNetwork, rules: MeshRules) -> NDArray[np.int64]:
    """Samples each device processes while the slowest board computes a basic batch, or in the rules' most seconds."""
    most = np.inf if rules.most_seconds is None else rules.most_seconds
    pace = np.maximum(1.0, min(network.batch_seconds.max(), most) / network.batch_seconds)
    return np.asarray(np.floor(rules.basic_batch * pace + 1e-9), dtype=np.int64)


def round_seconds(network: MeshNetwork, adjacency: Bools, batches: NDArray[np.int64], rules: MeshRules) -> float:
    """A round's seconds with the batches given; the compute of a lone device."""
    compute = network.batch_seconds * batches / rules.basic_batch
    if not adjacency.any():
        return float(compute.max())
    if rules.transfers == "shared":
        return float((compute + np.where(adjacency, network.link_seconds, 0.0).sum(axis=1)).max())
    return float((network.link_seconds + np.maximum.outer(compute, compute))[adjacency].max())
