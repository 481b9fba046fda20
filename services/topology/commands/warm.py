"""`python -m services.topology warm`: compiles the planners' loops, which saves the first plan a minute.

The compiled loops are cached on disk, beside the code or in NUMBA_CACHE_DIR, for all later processes.
"""

from __future__ import annotations

import sys

import numpy as np

from services.topology.domain.betta_fast import plan_mesh
from services.topology.domain.betta_network import MeshNetwork, MeshRules
from services.topology.domain.coalition import Game, partition_of
from services.topology.domain.formation import form
from services.topology.domain.quality import QualityModel
from services.trust.domain.graph import TrustGraph

LINE = 6


def main() -> int:
    """Plan a cluster game and a mesh on a line of devices, with near and far partners and trusted and other links."""
    print("compiling the planners' loops; once, a minute or two …", file=sys.stderr, flush=True)
    near = np.eye(LINE, k=1) + np.eye(LINE, k=-1)
    game = Game(TrustGraph.from_dense((0.5 * near).tolist()), 1.0, quality=QualityModel(calibration="exact"))
    start = partition_of([[0, 1, 2], *([device] for device in range(3, LINE))], LINE)
    for method in ("rounds", "sweep"):
        form(game, start, method)
    seconds = 1.0 + np.abs(np.subtract.outer(np.arange(LINE), np.arange(LINE)))
    trusted = [(device, device + 1) for device in range(LINE - 1)]
    network = MeshNetwork.build(LINE, trusted, seconds.tolist(), [1.0] * LINE)
    for rules in (MeshRules(epsilon=4.0), MeshRules(epsilon=4.0, transfers="shared", max_degree=3)):
        plan_mesh(network, rules)
    return 0
