"""`what-if blocks`: which device would transmit on which resource block. [DPVD]"""

from __future__ import annotations

from typing import Any

from services.kit.runtime import whatif
from services.topology.domain.blocks import UNSERVED, InvalidBlocks, allocate_blocks


class Input(whatif.Input):
    """delay in seconds, device × block ("inf" = impossible); limit Γ in seconds."""

    delay: list[list[whatif.Number]]
    limit: whatif.Number = 0.4


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
