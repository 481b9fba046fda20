"""What every strategy has in common where devices sell noised updates straight to the platform.

A device that sells claims that its update was clipped and carries the noise it was paid for. Both bound the update's
norm, so a norm beyond the bound is refused: it is not averaged, not paid, and held against the device. Within the bound
the platform cannot tell honest noise from garbage, which is why the bound is what protects the model; a norm that is
merely unusual is flagged for people to look at and paid all the same, because devices differ honestly.
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
from services.aggregation.strategies.roster import Update


class Sale(Strategy, ABC):
    """A star whose devices may decline the price."""

    sells = True
    commodity: ClassVar[str] = "budget"

    def check(self) -> None:
        try:
            self.check_terms()
        except (TypeError, ValueError) as error:
            raise BadTask(str(error)) from error
        super().check()

    @abstractmethod
    def check_terms(self) -> None:
        """Raises TypeError or ValueError when devices could not work with what the task tells them."""

    @abstractmethod
    def longest(self, budget: float, samples: int, elements: int) -> float:
        """The norm that an honest update sold for this budget stays within."""

    def inspect(self, update: Update) -> dict[str, float]:
        self.check_claim(update.item, update.delivery.budget)
        return super().inspect(update)

    def largest_norm(self, update: Update) -> float:
        return self.longest(update.delivery.budget, update.samples, update.elements)

    def allowing(self, update: Update) -> str:
        return f"clipping and a claimed {self.commodity} of {update.delivery.budget:.4g} allow"

    def quality(self, participation: Participation, values: Mapping[str, float]) -> float:
        """A pot beside the price is shared evenly: how many samples a device has is its own claim."""
        return 1.0

    def quorum(self, quorum: int, states: Sequence[ParticipationState]) -> int:
        """The round's quorum of those who neither declined the price nor were refused."""
        out = (ParticipationState.DECLINED, ParticipationState.REJECTED)
        if not any(state in out for state in states):
            return quorum
        staying = sum(state not in (*out, ParticipationState.IDLE) for state in states)
        return min(quorum, needed(staying, self.specification.quorum, self.specification.min_devices))
