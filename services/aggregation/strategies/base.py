"""A server strategy: everything that depends on a task's topology, privacy and incentive.

A strategy is composed of parts, one per phase of a round. The default parts make a star; a strategy names the classes
of the parts that differ:

    class Mesh(Strategy):
        task_check_class = MeshTaskCheck
        round_plan_class = MeshRoundPlan

Parts do no input or output: the steps in `rounds/` fetch what they need and store what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.strategies.parts.combination import VISIBLE, Combination
from services.aggregation.strategies.parts.delivery import DeliveryPolicy
from services.aggregation.strategies.parts.progress import RoundProgress
from services.aggregation.strategies.parts.round_plan import RoundPlan
from services.aggregation.strategies.parts.secure_sums import SecureSumPolicy
from services.aggregation.strategies.parts.settlement import Settlement
from services.aggregation.strategies.parts.task_check import TaskCheck
from services.aggregation.strategies.parts.terms import TaskTerms

__all__ = ["PRIVATE_NORM", "VISIBLE", "Strategy"]

PRIVATE_NORM = 1.0
"""Stored instead of the real norm when norms are private: 1.0 means "non-zero"."""


class Strategy:
    """The strategy of one task. Class attributes declare the combinations of axes it serves, the preset's first."""

    topology: ClassVar[str] = ""
    privacies: ClassVar[tuple[str, ...]] = ("none",)
    incentives: ClassVar[tuple[str, ...]] = ("none",)
    preset: ClassVar[str] = ""
    """A short name for the first combination; empty = none."""
    reasons: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Why a privacy or an incentive exists with this strategy only, for error messages."""

    terms_class: ClassVar[type[TaskTerms]] = TaskTerms
    task_check_class: ClassVar[type[TaskCheck]] = TaskCheck
    round_plan_class: ClassVar[type[RoundPlan]] = RoundPlan
    progress_class: ClassVar[type[RoundProgress]] = RoundProgress
    delivery_class: ClassVar[type[DeliveryPolicy]] = DeliveryPolicy
    combination_class: ClassVar[type[Combination]] = Combination
    settlement_class: ClassVar[type[Settlement]] = Settlement
    secure_sums_class: ClassVar[type[SecureSumPolicy]] = SecureSumPolicy

    def __init__(self, specification: TaskSpecification) -> None:
        self.specification = specification
        self.terms = self.terms_class(specification)
        self.task_check = self.task_check_class(self.terms)
        self.round_plan = self.round_plan_class(self.terms)
        self.progress = self.progress_class(self.terms)
        self.delivery = self.delivery_class(self.terms)
        self.combination = self.combination_class(self.terms)
        self.settlement = self.settlement_class(self.terms)
        self.secure_sums = self.secure_sums_class(self.terms)
