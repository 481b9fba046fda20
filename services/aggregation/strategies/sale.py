"""The parts that strategies share in which devices sell noised updates directly to the platform.

A device that sells claims that it clipped its update and added the noise it is paid for. Both bound the update's norm,
so an update beyond the bound is refused: it is not averaged, not paid, and held against the device. Within the bound
the platform cannot tell honest noise from garbage, so the bound protects the model. A norm that is only unusual is
flagged for review and paid, because honest devices differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from coterie.records.enums import ParticipationState
from services.aggregation.domain.records import Participation
from services.aggregation.domain.tasks import needed
from services.aggregation.errors import BadTask
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.parts.delivery import DeliveryPolicy
from services.aggregation.strategies.parts.progress import RoundProgress
from services.aggregation.strategies.parts.round_plan import RoundPlan
from services.aggregation.strategies.parts.settlement import Settlement
from services.aggregation.strategies.parts.task_check import TaskCheck
from services.aggregation.strategies.roster import Update


class SaleTaskCheck(TaskCheck, ABC):
    """Checks the terms of the sale first."""

    def require_valid(self) -> None:
        try:
            self.require_terms()
        except (TypeError, ValueError) as error:
            raise BadTask(str(error)) from error
        super().require_valid()

    @abstractmethod
    def require_terms(self) -> None:
        """Raise TypeError or ValueError when devices cannot work with the task's parameters."""


class SaleRoundPlan(RoundPlan):
    """Every device receives an offer."""

    sends_offers = True


class SaleProgress(RoundProgress):
    """Devices may decline the price."""

    def quorum(self, quorum: int, states: Sequence[ParticipationState]) -> int:
        """The round's quorum of the devices that neither declined the price nor were rejected."""
        out = (ParticipationState.DECLINED, ParticipationState.REJECTED)
        if not any(state in out for state in states):
            return quorum
        staying = sum(state not in (*out, ParticipationState.IDLE) for state in states)
        return min(quorum, needed(staying, self.specification.quorum, self.specification.min_devices))


class SaleDelivery(DeliveryPolicy, ABC):
    """Holds an update to the budget it was sold for."""

    commodity: ClassVar[str] = "budget"

    @abstractmethod
    def longest(self, budget: float, samples: int, elements: int) -> float:
        """The largest norm of an honest update sold for this budget."""

    def inspect(self, update: Update) -> dict[str, float]:
        self.require_paid_budget(update.item, update.delivery.budget)
        return super().inspect(update)

    def norm_limit(self, update: Update) -> float:
        return self.longest(update.delivery.budget, update.samples, update.elements)

    def norm_limit_reason(self, update: Update) -> str:
        return f"clipping and a claimed {self.commodity} of {update.delivery.budget:.4g} allow"


class SaleSettlement(Settlement):
    """Prices, and a pot in even shares."""

    def share(self, participation: Participation, values: Mapping[str, float]) -> float:
        """Even shares: the number of samples is the device's own claim."""
        return 1.0


class Sale(Strategy):
    """A star whose devices may decline the price."""

    topology = "star"
    privacies = ("priced",)

    round_plan_class = SaleRoundPlan
    progress_class = SaleProgress
    settlement_class = SaleSettlement
