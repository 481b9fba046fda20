"""Privacy that devices spent, added up so that a report costs the same after ten rounds or ten million.

A total is a charge that stands for many: Gaussian and zCDP ones add up to one of Σρ, sampled Gaussian ones of one
multiplier and rate and Laplace ones of one ε to one of that many steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coterie.privacy.accounting import Answer, Charge, adjacency_meant, answer
from coterie.privacy.claims import claim_of


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """What a device spent in one task: its totals, and in how many rounds."""

    task_id: str
    rounds: int
    totals: tuple[Charge, ...]


def total_of(charge: Charge) -> Charge:
    """The charge in the form that adds up; one without noise is a Gaussian one of infinite ρ."""
    match charge.mechanism:
        case "gaussian" | "zcdp":
            return replace(charge, rho=charge.rho * charge.steps, multiplier=0.0, steps=1)
        case "raw":
            return replace(charge, mechanism="gaussian", rho=math.inf)
        case _:
            return charge


def key_of(charge: Charge) -> list[object]:
    """The charge as plain values, by which two settlements are compared.

    An adjacency is named only where it is not the usual one of its mechanism, so that a round settled without it is
    settled alike now.
    """
    claim = claim_of(charge)
    values = [claim.mechanism, claim.parameter, claim.unit, claim.sampling_rate, claim.steps]
    meant = adjacency_meant(charge.mechanism, charge.unit)
    return values if charge.adjacency == meant else [*values, charge.adjacency]


def report(tasks: Sequence[TaskTotals], delta: float) -> tuple[Answer, list[Answer]]:
    """ε over all tasks, and of each, for the most that all their releases hide."""
    everything = [charge for task in tasks for charge in task.totals]
    return answer(everything, delta), [answer(task.totals, delta) for task in tasks]
