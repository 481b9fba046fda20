"""`what-if discrete-noise`: how a discrete Gaussian is put together, or which digits some words stand for."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from coterie.privacy.discrete import MOST_BASE, Table, gaussian_table, plan_noise
from services.aggregation.errors import BadSums
from services.kit.runtime import whatif


class Input(whatif.Input):
    """sigma alone; or base, with words (16 hexadecimal digits, or 32 with the further word) and values to look up."""

    sigma: float | None = None
    base: float | None = Field(default=None, gt=0, le=MOST_BASE)
    words: list[str] = Field(default_factory=list, max_length=1_000_000)
    values: list[int] = Field(default_factory=list, max_length=1_000_000)

    @model_validator(mode="after")
    def _one_question(self) -> Input:
        if (self.sigma is None) == (self.base is None):
            raise ValueError("give sigma to ask for a plan, or base to ask for digits and cuts, not both")
        return self


def solve(input: Input) -> dict[str, Any]:
    """{base, radix, digits}, or {lowest, digits of the words, cuts of the values}."""
    if input.sigma is not None:
        plan = plan_noise(input.sigma)
        return {"base": plan.base, "radix": plan.radix, "digits": plan.digits}
    assert input.base is not None
    table = gaussian_table(Decimal(input.base) ** 2)
    return {
        "lowest": table.lowest,
        "digits": [_digit(table, word) for word in input.words],
        "cuts": {value: f"{_cut(table, value):032x}" for value in input.values},
    }


def _digit(table: Table, text: str) -> int:
    if len(text) not in (16, 32) or set(text.lower()) - set("0123456789abcdef"):
        raise BadSums(f"words: 16 hexadecimal digits, or 32 with the further word, got {text[:40]!r}")

    def further() -> int:
        if len(text) == 16:
            raise BadSums(f"words: {text} needs a further word to tell; give 32 digits")
        return int(text[16:], 16)

    return int(table.look_up(np.array([int(text[:16], 16)], dtype=np.uint64), further)[0])


def _cut(table: Table, value: int) -> int:
    place = value - table.lowest
    if not 0 <= place <= -2 * table.lowest:
        raise BadSums(f"values: the table of this base has {table.lowest} to {-table.lowest}, got {value}")
    return table.cuts[place] if place < len(table.cuts) else (1 << 128) - 1
