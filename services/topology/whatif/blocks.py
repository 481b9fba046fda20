"""`what-if blocks`: which device would transmit on which resource block. [DPVD]"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AllowInfNan, BeforeValidator

from services.kit import whatif
from services.topology.domain.blocks import UNSERVED, InvalidBlocks, allocate_blocks


def _read_infinity(value: object) -> object:
    return math.inf if value == "inf" else value


# Not `whatif.Number`: pydantic applies AllowInfNan only to a bare float, so it must come before the validator.
MaybeInfinite = Annotated[float, AllowInfNan(True), BeforeValidator(_read_infinity)]
"""A float that may be the string "inf"."""


class Input(whatif.Input):
    """delay in seconds, device × block ("inf" = impossible); limit Γ in seconds."""

    delay: list[list[MaybeInfinite]]
    limit: MaybeInfinite = 0.4


def solve(input: Input) -> dict[str, Any]:
    """assignment: block or null per device; served: how many; total_delay: their seconds together."""
    widths = {len(row) for row in input.delay}
    if len(widths) > 1:
        raise InvalidBlocks(f"the rows of delay have {sorted(widths)} entries; give one per block in every row")
    allocation = allocate_blocks(input.delay, input.limit)
    return {
        "assignment": [None if block == UNSERVED else int(block) for block in allocation.block],
        "served": allocation.served,
        "total_delay": allocation.total_delay,
    }
