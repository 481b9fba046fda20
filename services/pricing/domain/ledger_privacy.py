"""Privacy that devices spent, added up so that a report costs the same after ten rounds or ten million.

Releases of one kind compose by a single number: Gaussian and zCDP ones by Σρ, sampled Gaussian ones of one multiplier
and rate and Laplace ones of one ε by how many there were. A claim that cannot be is not refused, which would hold the
round up for everybody, but counted as a release without noise: the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coterie.privacy import accounting, renyi
from coterie.privacy.accounting import NOTHING, Loss

MECHANISMS = ("gaussian", "laplace", "zcdp")
UNITS = ("example", "device")
MOST_STEPS = 10**9


@dataclass(frozen=True, slots=True)
class Charge:
    """One use of a mechanism: "gaussian", "laplace", "zcdp", or "raw" for none. Made by `read_charge`."""

    mechanism: str
    parameter: float
    unit: str
    sampling_rate: float = 1.0
    steps: int = 1

    @property
    def key(self) -> list[object]:
        """The charge as plain values."""
        return [self.mechanism, self.parameter, self.unit, self.sampling_rate, self.steps]


def read_charge(mechanism: str, parameter: float, unit: str, sampling_rate: float, steps: int) -> Charge:
    """A charge from what a device claims; whatever cannot be becomes "raw", a release without noise."""
    rate = sampling_rate or 1.0
    sound = mechanism in MECHANISMS and 0.0 < parameter < math.inf and 0.0 < rate <= 1.0
    protected = unit if unit in UNITS else "example"
    if not sound:
        return Charge("raw", 0.0, protected, 1.0, 1)
    return Charge(mechanism, parameter, protected, rate, min(max(steps, 1), MOST_STEPS))


@dataclass(frozen=True, slots=True)
class Total:
    """Charges of one kind together.

    `amount` is Σρ of "gaussian" and "zcdp", else how many releases of that `parameter` and `sampling_rate`.
    """

    mechanism: str
    unit: str
    parameter: float
    sampling_rate: float
    amount: float


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """What a device spent in one task: its totals, and in how many rounds."""

    task_id: str
    rounds: int
    totals: tuple[Total, ...]

    @property
    def unit(self) -> str:
        """What every release of the task hides: the whole "device" only if all of them do."""
        return "device" if all(total.unit == "device" for total in self.totals) else "example"


def total_of(charge: Charge) -> Total:
    """The charge as a total of its own."""
    value, rate, steps = charge.parameter, charge.sampling_rate, float(charge.steps)
    match charge.mechanism:
        case "gaussian" if rate < 1.0:
            return Total("sampled-gaussian", charge.unit, value, rate, steps)
        case "gaussian":
            return Total("gaussian", charge.unit, 0.0, 1.0, 0.5 / value / value * steps)
        case "zcdp":
            return Total("zcdp", charge.unit, 0.0, 1.0, value * steps)
        case "laplace":
            return Total("laplace", charge.unit, value, 1.0, steps)
        case _:
            return Total("gaussian", charge.unit, 0.0, 1.0, math.inf)


def loss_of(total: Total) -> Loss:
    """Composed loss of a total, by the same bounds that the device's own ledger uses."""
    match total.mechanism:
        case "gaussian":
            return Loss(total.amount, NOTHING.orders, 0.0, 0.0)
        case "zcdp":
            return Loss(0.0, renyi.gaussian_loss(total.amount), math.inf, 0.0)
        case "sampled-gaussian":
            orders = renyi.sampled_gaussian_loss(total.parameter, total.sampling_rate) * total.amount
            return Loss(0.0, orders, math.inf, 0.0)
        case _:
            once = accounting.loss_of(accounting.laplace_charge("task", 1, "update", "device", total.parameter))
            return Loss(0.0, once.orders * total.amount, once.pure * total.amount, 0.0)


def epsilon_of(totals: Iterable[Total], delta: float) -> float:
    """ε of all the totals together at δ, for one example; nothing spent gives 0."""
    composed = NOTHING
    for total in totals:
        composed = composed.plus(loss_of(total))
    return composed.epsilon(delta)


def report(tasks: Sequence[TaskTotals], delta: float) -> tuple[float, list[float]]:
    """ε over all tasks, and of each."""
    everything = [total for task in tasks for total in task.totals]
    return epsilon_of(everything, delta), [epsilon_of(task.totals, delta) for task in tasks]
