"""`python -m services.topology what-if SOLVER`."""

import sys

from services.kit import whatif

SOLVERS = {
    "clusters": "services.topology.whatif.clusters",
    "mesh": "services.topology.whatif.mesh",
    "noise": "services.topology.whatif.noise",
    "blocks": "services.topology.whatif.blocks",
    "identity": "services.topology.whatif.identity",
}

if __name__ == "__main__":
    sys.exit(whatif.main(SOLVERS, sys.argv[2:]))
