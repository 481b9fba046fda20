"""What every way has in common where devices sell noised updates straight to the platform.

A device that sells claims that its update was clipped and carries the noise it was paid for. Both bound the update's
norm, so a norm beyond the bound is refused: it is not averaged, not paid, and held against the device. Within the bound
the platform cannot tell honest noise from garbage, which is why the bound is what protects the model; a norm that is
merely unusual is flagged for people to look at and paid all the same, because devices differ honestly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from coterie.records.words import ParticipationState
from services.aggregation.domain.plausibility import norm_of
from services.aggregation.domain.records import Delivery
from services.aggregation.domain.tasks import needed
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.ways.base import Update, Way


class Sale(Way, ABC):
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
    def largest_norm(self, budget: float, samples: int, elements: int) -> float:
        """The norm an honest update stays within."""

    def check_claim(self, delivery: Delivery) -> None:
        """Raises BadUpdate for a claim that nobody pays for."""

    def inspect(self, update: Update) -> dict[str, float]:
        return self.check_norm(update.delivery, update.samples, update.elements, norm_of(update.layout, update.read))

    def check_norm(self, delivery: Delivery, samples: int, elements: int, norm: float) -> dict[str, float]:
        """Refuses an update whose norm the claim rules out."""
        self.check_claim(delivery)
        most = self.largest_norm(delivery.budget, samples, elements)
        if norm > most:  # NaN passes here: folding refuses it and says where it is
            raise BadUpdate(
                f"the update's norm of {norm:.4g} is beyond the {most:.4g} that clipping and a claimed "
                f"{self.commodity} of {delivery.budget:.4g} allow"
            )
        return {}

    def quorum(self, quorum: int, states: Sequence[ParticipationState]) -> int:
        """The round's quorum of those who neither declined the price nor were refused."""
        out = (ParticipationState.DECLINED, ParticipationState.REJECTED)
        if not any(state in out for state in states):
            return quorum
        staying = sum(state not in (*out, ParticipationState.IDLE) for state in states)
        return min(quorum, needed(staying, self.specification.quorum, self.specification.min_devices))
