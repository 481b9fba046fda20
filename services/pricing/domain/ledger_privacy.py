"""Running totals of the privacy that devices spent: a report's cost does not depend on the number of rounds.

A total is a charge that stands for many: Gaussian and zCDP charges add up to one of Σρ, Laplace charges of one ε to one
of their number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coterie.privacy.accounting import Answer, Charge, adjacency_meant, answer
from coterie.privacy.claims import claim_of


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """A device's totals in one task, and the number of its rounds."""

    task_id: str
    rounds: int
    totals: tuple[Charge, ...]


def total_of(charge: Charge) -> Charge:
    """Return the charge in the form that adds up; a charge without noise is a Gaussian one of infinite ρ."""
    match charge.mechanism:
        case "gaussian" | "zcdp":
            return replace(charge, rho=charge.rho * charge.steps, multiplier=0.0, steps=1)
        case "raw":
            return replace(charge, mechanism="gaussian", rho=math.inf)
        case _:
            return charge


def key_of(charge: Charge) -> list[object]:
    """Return the charge as plain values, by which settlements are compared.

    The adjacency is included only where it differs from its mechanism's default.
    """
    claim = claim_of(charge)
    values = [claim.mechanism, claim.parameter, claim.unit, claim.sampling_rate, claim.steps]
    meant = adjacency_meant(charge.mechanism, charge.unit)
    return values if charge.adjacency == meant else [*values, charge.adjacency]


def report(tasks: Sequence[TaskTotals], delta: float) -> tuple[Answer, list[Answer]]:
    """Return ε over all tasks, and of each task, composed over all releases."""
    everything = [charge for task in tasks for charge in task.totals]
    return answer(everything, delta), [answer(task.totals, delta) for task in tasks]
