"""`what-if rounding`: the whole numbers a device makes of its change in a secure sum with noise, before the noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from coterie.privacy.grid import rounded
from services.aggregation.errors import NoGrid
from services.kit.runtime import whatif


class Input(whatif.Input):
    """change; clip_norm and scale as in the terms; weight in (0, 1]."""

    change: list[whatif.Number] = Field(min_length=1)
    clip_norm: float = Field(default=1.0, gt=0)
    scale: int = Field(ge=-1_000, le=1_000)
    weight: float = Field(default=1.0, gt=0, le=1)


def solve(input: Input) -> dict[str, Any]:
    """values, of L2 norm at most clip_norm·2^scale; zeros where the change is not finite."""
    try:
        return {"values": rounded(np.array(input.change), input.clip_norm, input.scale, input.weight)}
    except (ValueError, OverflowError) as error:
        raise NoGrid(str(error)) from error
