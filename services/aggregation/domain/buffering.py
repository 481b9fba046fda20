"""Asynchronous rounds: the model steps whenever K updates have come, each weighed by how stale it is.

J. Nguyen and others, "Federated learning with buffered asynchronous aggregation" (FedBuff), AISTATS 2022. A round is a
buffer. An update made from the model of round u that counts in round v has staleness τ = v − u and counts
s(τ) = (1 + τ)^−a as much as a fresh one. A step is Σ w·s(τ)·Δ / Σ w over the K updates: what staleness takes away is
not made up for by the others, so a stale buffer takes a shorter step.

Which update was made for which round and counted in which is stored with it; s is rounded to whole units before it is
used. So the same models come out of the stored updates on any machine, in any order.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from coterie.parameters.task import AsynchronousParameters
from coterie.records.enums import RoundMode
from services.aggregation.errors import BadTask
from services.kit.rpc.parameters import validate

UNIT = 2.0**-30
"""Staleness weights are whole multiples of this."""
PLACE = "parameters.asynchronous"


@dataclass(frozen=True, slots=True)
class Buffering:
    """How arrivals become steps.

    Attributes
    ----------
    size : K, updates that make a step; at least 1.
    exponent : a of (1 + τ)^−a; 0 makes all equal.
    limit : largest staleness that is taken; staler updates are refused, with the reason.
    """

    size: int
    exponent: float = 0.5
    limit: int = 20

    def discount(self, staleness: int) -> float:
        """s(τ), a whole multiple of UNIT above 0."""
        return max(round(math.pow(1.0 + staleness, -self.exponent) / UNIT), 1) * UNIT

    def why_not(self, staleness: int) -> str:
        """Why an update so stale does not count; empty when it does."""
        if staleness <= self.limit:
            return ""
        return (
            f"the update is {staleness} versions behind the model and at most {self.limit} are taken; "
            "ask for work again and train from the newest version"
        )


def read_mode(mode: RoundMode, parameters_json: str, min_devices: int) -> Buffering | None:
    """How an asynchronous task's updates become steps; None for a synchronous one."""
    if mode not in list(RoundMode):
        raise BadTask(f"no mode {str(mode)[:50]!r}; choose one of: {', '.join(RoundMode)}")
    parameters = json.loads(parameters_json)
    if mode is RoundMode.SYNCHRONOUS:
        if parameters.get(AsynchronousParameters.section):
            raise BadTask(f"{PLACE}: a synchronous task takes none of these; give the task the mode asynchronous")
        return None
    given = validate(AsynchronousParameters, parameters)
    size = min_devices if given.buffer is None else given.buffer
    if size > min_devices:
        raise BadTask(
            f"{PLACE}.buffer: a device counts once in a step, so a buffer of {size} needs min_devices of at least as "
            f"many, not {min_devices}"
        )
    return Buffering(size, given.staleness_exponent, given.staleness_limit)
