"""Plain mesh topologies: the social graph itself, a ring, every pair.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §IV-A.
"""

from __future__ import annotations

import numpy as np

from services.topology.domain.betta_network import MeshNetwork

Links = list[tuple[int, int]]


def social_links(network: MeshNetwork) -> Links:
    """Every trusted, possible link."""
    usable = network.trusted & np.isfinite(network.link_seconds)
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(usable))]


def ring_links(devices: int) -> Links:
    """0–1–…–0; one link for two devices, none for one."""
    return sorted({(min(i, j), max(i, j)) for i in range(devices) if (j := (i + 1) % devices) != i})


def complete_links(devices: int) -> Links:
    """Every pair."""
    return [(i, j) for i in range(devices) for j in range(i + 1, devices)]
