"""`what-if clerks`: the committee that would count a secure sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from services.kit.runtime import whatif
from services.topology.domain.clerks import choose_clerks
from services.topology.errors import BadCommittee


class Input(whatif.Input):
    """trust: rows trust columns, combined; owners of all; participants and candidates by number, by default all."""

    trust: list[list[float]]
    owners: list[str]
    participants: list[int] | None = None
    candidates: list[int] | None = None
    clerks: int = 4
    threshold: int = 2


def solve(input: Input) -> dict[str, Any]:
    """clerks by number; none, and no trust, where the candidates have too few owners."""
    devices = len(input.owners)
    if len(input.trust) != devices or any(len(row) != devices for row in input.trust):
        raise BadCommittee(f"trust must be square with a row for each of the {devices} owners")
    all_devices = list(range(devices))
    committee = choose_clerks(
        np.array(input.trust, dtype=np.float64).reshape(devices, devices),
        input.owners,
        participants=all_devices if input.participants is None else input.participants,
        candidates=all_devices if input.candidates is None else input.candidates,
        clerks=input.clerks,
        threshold=input.threshold,
    )
    return {
        "clerks": list(committee.clerks),
        "least_trust": committee.least_trust,
        "total_trust": committee.total_trust,
    }
