"""`python -m services.pricing what-if SOLVER`."""

import sys

from services.kit import whatif

SOLVERS = {"market": "services.pricing.whatif.market", "survey": "services.pricing.whatif.survey"}

if __name__ == "__main__":
    sys.exit(whatif.main(SOLVERS, sys.argv[2:]))
