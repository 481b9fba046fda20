"""`what-if grid`: how fine a secure sum with noise is, and how large an honest sum can come out."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from coterie.secure_sums import grid
from services.aggregation.errors import NoGrid
from services.kit.runtime import whatif


class Input(whatif.Input):
    """devices n; elements d; noise_multiplier z of the sum; honest h of the survivors; survivors, by default all."""

    devices: int = Field(ge=1, le=10**9)
    elements: int = Field(ge=1, le=10**12)
    clip_norm: float = Field(default=1.0, gt=0)
    noise_multiplier: float = Field(gt=0)
    honest: int = Field(ge=1, le=10**9)
    survivors: int | None = Field(default=None, ge=1, le=10**9)


def solve(input: Input) -> dict[str, Any]:
    """bits, scale, bound B, share of the noise of each device, tail λ, and the largest value and norm of the sum."""
    try:
        result = grid.choose_grid(input.devices, input.elements, input.clip_norm, input.noise_multiplier, input.honest)
    except grid.NoGrid as error:
        raise NoGrid(str(error)) from error
    survivors = input.devices if input.survivors is None else input.survivors
    return {
        "bits": result.bits,
        "scale": result.scale,
        "bound": result.bound,
        "share": result.share,
        "tail": result.tail,
        "largest_value": result.largest_value(survivors),
        "largest_norm": result.largest_norm(survivors),
    }
