"""`what-if identity`: which model each device would join. [DPVD]"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from services.kit.runtime import whatif
from services.topology.domain.identity import InvalidIdentities, choose_models


class Input(whatif.Input):
    """loss and similarity, device × model; weight λ in [0, 1]. Without similarity the loss alone decides."""

    loss: list[list[whatif.Number]]
    similarity: list[list[float]] | None = None
    weight: float = Field(default=0.5, ge=0, le=1)


def solve(input: Input) -> dict[str, Any]:
    """model: the number of the chosen model per device, ties to the lowest."""
    similarity = input.similarity
    widths = {len(row) for row in [*input.loss, *(similarity or [])]}
    if len(widths) > 1:
        raise InvalidIdentities(f"the rows have {sorted(widths)} entries; give one per model in every row")
    if similarity is not None and len(similarity) != len(input.loss):
        raise InvalidIdentities(f"similarity has {len(similarity)} rows for {len(input.loss)} devices; give one each")
    return {"model": choose_models(input.loss, similarity, input.weight)}
