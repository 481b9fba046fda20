"""Server half of shifts: a star of the devices whose shift it is."""

from __future__ import annotations

from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.parts.task_check import TaskCheck


class ShiftsTaskCheck(TaskCheck):
    lockstep_reason = "shifts alternate by round"

    def require_secure_sums(self, rules: SumRules) -> None:
        raise BadTask("sums.mode secure: most devices rest in each round; leave sums out")


class Shifts(Strategy):
    topology = "shifts"
    preset = "shifts"
    task_check_class = ShiftsTaskCheck
