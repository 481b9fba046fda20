"""A charge as it is told to the platform, and as the platform takes it.

The message says mechanism, one parameter, what is protected and against what, rate and steps; task, round and device
are those of the update it comes with. What a device claims is not refused, which would hold the round up for everybody:
a claim that cannot be counts as a release without noise, the safe side.
"""

from __future__ import annotations

import math

from coterie.privacy import zcdp
from coterie.privacy.accounting import Adjacency, Charge, Mechanism, Unit, adjacency_meant, raw_charge
from coterie.records.enums import PrivacyAdjacency, PrivacyMechanism, PrivacyUnit
from coterie.records.privacy import PrivacyClaim

PURPOSE = "update"
MOST_STEPS = 10**9


def claim_of(charge: Charge) -> PrivacyClaim:
    """What is told of a charge."""
    mechanism, parameter = _parameter(charge)
    return PrivacyClaim(
        mechanism=PrivacyMechanism(mechanism),
        parameter=parameter,
        unit=PrivacyUnit(charge.unit),
        sampling_rate=charge.rate,
        steps=charge.steps,
        adjacency=PrivacyAdjacency(charge.adjacency),
    )


def charge_of(claim: PrivacyClaim, task: str = "claimed", round: int = 0) -> Charge:
    """A charge from what a device claims; whatever cannot be becomes "raw"."""
    parameter, rate = claim.parameter, claim.sampling_rate or 1.0
    unit: Unit = "device" if claim.unit == "device" else "example"
    known = claim.mechanism in ("gaussian", "laplace", "zcdp") and claim.adjacency in ("", "left-out", "replaced")
    if not (known and 0.0 < parameter < math.inf and 0.0 < rate <= 1.0):
        return raw_charge(task, round, PURPOSE, unit)
    steps = min(max(claim.steps, 1), MOST_STEPS)
    adjacency: Adjacency = adjacency_meant("sampled-gaussian" if rate < 1.0 else claim.mechanism, unit)
    if claim.adjacency:
        adjacency = "replaced" if claim.adjacency == "replaced" else "left-out"
    match claim.mechanism:
        case "laplace":
            return Charge(task, round, PURPOSE, "laplace", unit, adjacency, epsilon=parameter, steps=steps)
        case "zcdp":
            return Charge(task, round, PURPOSE, "zcdp", unit, adjacency, rho=parameter, steps=steps)
    sampled = rate < 1.0
    mechanism: Mechanism = "sampled-gaussian" if sampled else "gaussian"
    rho = 0.0 if sampled else zcdp.rho_of_multiplier(parameter)
    return Charge(
        task, round, PURPOSE, mechanism, unit, adjacency, rho=rho, multiplier=parameter, rate=rate, steps=steps
    )


def _parameter(charge: Charge) -> tuple[str, float]:
    match charge.mechanism:
        case "gaussian":
            return "gaussian", charge.multiplier or zcdp.multiplier_of_rho(charge.rho)
        case "sampled-gaussian":
            return "gaussian", charge.multiplier
        case "zcdp":
            return "zcdp", charge.rho
        case "laplace":
            return "laplace", charge.epsilon
        case "raw":
            return "raw", 0.0
        case "approximate":
            raise ValueError("no message tells of a release known only by (ε, δ)")
