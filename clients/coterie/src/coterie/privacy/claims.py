"""Conversion between a charge and the claim that a device sends to the platform.

A claim holds mechanism, one parameter, unit, adjacency and steps; task, round and device are those of the update it
comes with. An invalid claim is not refused, because that would hold up the round for all devices: it counts as a
release without noise, the safe side. Likewise a claimed sampling rate below 1 does not lower the cost.
"""

from __future__ import annotations

import math

from coterie.privacy import zcdp
from coterie.privacy.accounting import Adjacency, Charge, Unit, adjacency_meant, raw_charge
from coterie.records.enums import PrivacyAdjacency, PrivacyMechanism, PrivacyUnit
from coterie.records.privacy import PrivacyClaim

PURPOSE = "update"
MOST_STEPS = 10**9


def claim_of(charge: Charge) -> PrivacyClaim:
    """Make the claim that reports a charge."""
    return PrivacyClaim(
        mechanism=PrivacyMechanism(charge.mechanism),
        parameter=_parameter(charge),
        unit=PrivacyUnit(charge.unit),
        sampling_rate=1.0,
        steps=charge.steps,
        adjacency=PrivacyAdjacency(charge.adjacency),
    )


def charge_of(claim: PrivacyClaim, task: str = "claimed", round: int = 0) -> Charge:
    """Make the charge that a claim reports; an invalid claim becomes a raw charge."""
    parameter, rate = claim.parameter, claim.sampling_rate or 1.0
    unit: Unit = "device" if claim.unit == "device" else "example"
    known = claim.mechanism in ("gaussian", "laplace", "zcdp") and claim.adjacency in ("", "left-out", "replaced")
    if not (known and 0.0 < parameter < math.inf and 0.0 < rate <= 1.0):
        return raw_charge(task, round, PURPOSE, unit)
    steps = min(max(claim.steps, 1), MOST_STEPS)
    adjacency: Adjacency = adjacency_meant(claim.mechanism, unit)
    if claim.adjacency:
        adjacency = "replaced" if claim.adjacency == "replaced" else "left-out"
    named = (task, round, PURPOSE)
    match claim.mechanism:
        case "laplace":
            return Charge(*named, "laplace", unit, adjacency, epsilon=parameter, steps=steps)
        case "zcdp":
            return Charge(*named, "zcdp", unit, adjacency, rho=parameter, steps=steps)
    rho = zcdp.rho_of_multiplier(parameter)
    return Charge(*named, "gaussian", unit, adjacency, rho=rho, multiplier=parameter, steps=steps)


def _parameter(charge: Charge) -> float:
    match charge.mechanism:
        case "gaussian":
            return charge.multiplier or zcdp.multiplier_of_rho(charge.rho)
        case "zcdp":
            return charge.rho
        case "laplace":
            return charge.epsilon
        case "raw":
            return 0.0
