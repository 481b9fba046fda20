"""`python -m services.trust what-if SOLVER`."""

import sys

from services.kit import whatif

SOLVERS = {"scores": "services.trust.whatif.scores"}

if __name__ == "__main__":
    sys.exit(whatif.main(SOLVERS, sys.argv[2:]))
