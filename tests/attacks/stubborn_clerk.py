"""A clerk in a separate process that agrees to one session after the other until it is killed.

Prints a line for every signature it gave: round, T, D and the signature.
"""

import dataclasses
import sys
from pathlib import Path

from coterie.secure_sums.terms import survivors_digest
from tests.attacks.sum_fixture import SumFixture, names, survivors_of

if __name__ == "__main__":
    sum_fixture = SumFixture(Path(sys.argv[1]), names(4), clerks=3, least=3)
    for number in range(1, 10_000):
        sum_fixture.round = number
        terms = dataclasses.replace(sum_fixture.terms(), least=3, honest=2)
        deliveries = sum_fixture.deliver_all(terms)
        sum_fixture.ready_check(terms, "dev_00", deliveries)
        survivors = survivors_of(deliveries)
        signature = sum_fixture.desks["dev_00"].commit(terms, sum_fixture.participants, survivors)
        chosen = survivors_digest(terms.digest, survivors)
        print(number, terms.digest.hex(), chosen.hex(), signature.hex(), flush=True)
