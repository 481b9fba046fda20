"""`what-if noise`: the noise every scheduled device would add, and what privacy it would buy. [DPVD]"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from services.kit.runtime import whatif
from services.topology.domain.cell_noise import NoiseWeights, bounded_noise


class Input(whatif.Input):
    """samples X > 0 per device; clip M; dimension d; smoothness L; privacy_weight γ; bounds on σ, high may be "inf"."""

    samples: list[float]
    clip: float = Field(default=1.0, gt=0)
    dimension: float = Field(default=1.0, gt=0)
    smoothness: float = Field(default=10.0, gt=0)
    privacy_weight: float = Field(default=1e-2, ge=0)
    low: list[whatif.Number] | None = None
    high: list[whatif.Number] | None = None


def solve(input: Input) -> dict[str, Any]:
    """noise σ and zCDP budget ρ per device, and the objective's value."""
    weights = NoiseWeights(input.clip, input.dimension, input.smoothness, input.privacy_weight)
    plan = bounded_noise(input.samples, weights, low=input.low, high=input.high)
    return {"noise": plan.noise, "budget": plan.budget, "value": plan.value}
