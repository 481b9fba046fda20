"""Incentives from other distributions: entry points of the group `coterie.incentives`.

The name of the entry point is the incentive. Its parameters are a group of the section "pricing" that the distribution
declares as an entry point of the group `coterie.parameters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from coterie.plugins import Registry, require_members
from services.pricing.domain.records import Offer, Quote, RoundBudget

if TYPE_CHECKING:
    from services.pricing.domain.ledger_settlement import Work


class Incentive(Protocol):
    """Prices one round and computes what its work is owed. Both methods are pure."""

    def quote(
        self, task_id: str, round_number: int, devices: list[str], parameters: Any, round_budget: RoundBudget
    ) -> Quote:
        """Return the offers of a round; `parameters` are the task's, validated."""
        ...

    def due(self, offer: Offer, work: Work) -> tuple[int, str]:
        """Return the micro-credits owed for delivered work beside its share of the pot, and the reason."""
        ...


def require_incentive(item: object) -> Incentive:
    """Return the object if it has the interface of an incentive, else raise TypeError."""
    require_members(item, "quote", "due")
    return cast(Incentive, item)


REGISTRY = Registry("coterie.incentives", {}, require_incentive)
