"""`what-if sum-privacy`: the ε that rounds of a secure sum with noise cost a device, and on what assumptions."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from coterie.privacy.gaussian import exact_epsilon
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadSums
from services.kit.runtime import whatif


class Input(whatif.Input):
    """participants; least survivors; colluders, by default a tenth of these; noise_multiplier z of the sum."""

    participants: int = Field(ge=1, le=10**9)
    least: int = Field(ge=1, le=10**9)
    colluders: int | None = Field(default=None, ge=0, le=10**9)
    noise_multiplier: float = Field(gt=0)
    rounds: int = Field(default=1, ge=1, le=10**9)
    delta: float = Field(default=1e-5, gt=0, lt=1)


def solve(input: Input) -> dict[str, Any]:
    """Device level, a contribution left out; every device's own share is share_multiplier clip norms of noise."""
    if input.least > input.participants:
        raise BadSums(f"least: {input.least} survivors of {input.participants} participants")
    honest = SumRules(colluders=input.colluders).honest(input.least)
    multiplier = input.noise_multiplier

    def epsilon(noise: float) -> float:
        return exact_epsilon(noise / math.sqrt(input.rounds), input.delta)

    return {
        "honest": honest,
        "share_multiplier": multiplier / math.sqrt(honest),
        "epsilon": epsilon(multiplier),
        "epsilon_without_colluders": epsilon(multiplier * math.sqrt(input.least / honest)),
        "epsilon_if_clerks_collude": epsilon(multiplier / math.sqrt(honest)),
    }
