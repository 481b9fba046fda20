"""Privacy charges as devices claim them: message ↔ record."""

from __future__ import annotations

from coterie.records.enums import PrivacyAdjacency, PrivacyMechanism, PrivacyUnit
from coterie.records.privacy import PrivacyClaim
from coterie_api.pricing.v1.pricing_pb2 import PrivacyCharge
from services.kit.rpc.enums import known_number, word


def read_claim(message: PrivacyCharge) -> PrivacyClaim:
    """Read a message into a record."""
    return PrivacyClaim(
        mechanism=word(PrivacyMechanism, message.mechanism),
        parameter=message.parameter,
        unit=word(PrivacyUnit, message.unit),
        sampling_rate=message.sampling_rate,
        steps=message.steps,
        adjacency=word(PrivacyAdjacency, message.adjacency),
    )


def claim_message(claim: PrivacyClaim) -> PrivacyCharge:
    """Write a record into a message. An unknown mechanism becomes 0, which counts as a release without noise."""
    return PrivacyCharge(
        mechanism=known_number(claim.mechanism),
        parameter=claim.parameter,
        unit=known_number(claim.unit),
        sampling_rate=claim.sampling_rate,
        steps=claim.steps,
        adjacency=known_number(claim.adjacency),
    )
