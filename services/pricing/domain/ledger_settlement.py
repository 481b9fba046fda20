"""What a quote owes for a round's work, and how much of it the escrow can pay.

Only delivered work is paid. Under "stackelberg" the payment is price × budget ([MPPFL] section 2.4), under "correlated"
r − θσ² ([CAPP] eq. 3), between 0 and the offer's maximum; under "payoff" the device's share of its cluster's value, or
of the round's pot by quality; under "contribution" its share of the pot by its update's Shapley value. When the escrow
does not cover all dues, every device is paid the same fraction.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from coterie.privacy.accounting import Charge
from coterie.records.enums import ParticipationState
from services.kit.rpc.parameters import BadParameters
from services.pricing.domain import incentive_plugins
from services.pricing.domain.ledger_privacy import key_of
from services.pricing.domain.money import apportion, credits, whole
from services.pricing.domain.records import Offer, Quote

_QUALITY_UNIT = 2**60


@dataclass(frozen=True, slots=True)
class Work:
    """What a device did in a round; an impossible budget or quality makes the work rejected.

    Attributes
    ----------
    outcome : delivered, or how it failed.
    budget : zCDP budget it claims to have spent (stackelberg), or its noise variance (correlated).
    quality : weight of its update, for shares of a pot.
    payoff_microcredits : its share of its cluster's value; None when it is in no paid cluster.
    charges : privacy it spent.
    excluded_because : why the task's rule did not count its update; its work is paid all the same.
    """

    device_id: str
    owner_id: str
    outcome: ParticipationState
    budget: float = 0.0
    quality: float = 0.0
    payoff_microcredits: int | None = None
    charges: tuple[Charge, ...] = ()
    excluded_because: str = ""

    def __post_init__(self) -> None:
        if not (0.0 <= self.budget < math.inf and 0.0 <= self.quality < math.inf):
            object.__setattr__(self, "outcome", ParticipationState.REJECTED)


@dataclass(frozen=True, slots=True)
class Due:
    """What one device is owed, at which price, and why."""

    work: Work
    amount_microcredits: int
    price_microcredits: int
    because: str


def digest_work(work: Sequence[Work]) -> str:
    """SHA-256 of the delivered work in any order, by which repeated settlements of a round are compared.

    Failed work is left out: a device that was absent at first may be late by the time of a repeat.
    """
    rows = sorted(
        [w.device_id, w.owner_id, w.budget, w.quality, _digested(w.payoff_microcredits), [key_of(c) for c in w.charges]]
        for w in work
        if w.outcome is ParticipationState.DELIVERED
    )
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _digested(payoff: int | None) -> int:
    """Return the payoff as the digest has it: -1 for none."""
    return -1 if payoff is None else payoff


def compute_dues(quote: Quote, work: Sequence[Work]) -> list[Due]:
    """Return what each delivered device is owed, in order of device id, without zero amounts."""
    delivered = sorted((w for w in work if w.outcome is ParticipationState.DELIVERED), key=lambda w: w.device_id)
    shares = share_pot(quote.pot_microcredits, delivered)
    offers = {offer.device_id: offer for offer in quote.offers}
    rule = _rule_for(quote.incentive)
    dues = []
    for w, share in zip(delivered, shares, strict=True):
        offer = offers.get(w.device_id, Offer(w.device_id))
        priced, because = rule(offer, w)
        amount = priced + share
        if share:
            from_pot = f"{credits(share)} credits of the pot of {credits(quote.pot_microcredits)}"
            because = "; ".join(filter(None, [because, from_pot]))
        if w.excluded_because:
            because += f"; paid although the task's rule excluded its update: {w.excluded_because}"
        if amount > 0:
            dues.append(Due(w, amount, offer.price_microcredits if priced else 0, because))
    return dues


def share_pot(pot: int, delivered: Sequence[Work]) -> list[int]:
    """Shares of the round's pot by quality, among devices without a payoff."""
    qualities = [w.quality if w.payoff_microcredits is None else 0.0 for w in delivered]
    total = math.fsum(qualities)
    if pot == 0 or total == 0.0:
        return [0] * len(delivered)
    weights = [int(quality / total * _QUALITY_UNIT) for quality in qualities]
    return apportion(pot, weights, [w.device_id for w in delivered])


def fit_escrow(dues: Sequence[Due], escrow: int) -> list[Due]:
    """Return the dues, scaled down equally when `escrow` does not cover them, without zero amounts."""
    owed = sum(due.amount_microcredits for due in dues)
    if owed <= escrow:
        return list(dues)
    amounts = apportion(escrow, [due.amount_microcredits for due in dues], [due.work.device_id for due in dues])
    return [
        Due(
            due.work,
            paid,
            due.price_microcredits,
            f"{due.because}; {credits(due.amount_microcredits)} credits were owed",
        )
        for due, paid in zip(dues, amounts, strict=True)
        if paid
    ]


def _pay_nothing(offer: Offer, work: Work) -> tuple[int, str]:
    return 0, ""


def _pay_payoff(offer: Offer, work: Work) -> tuple[int, str]:
    owed = work.payoff_microcredits or 0
    return owed, f"payoff at quality {work.quality:.6g}" if owed else ""


def _pay_budget(offer: Offer, work: Work) -> tuple[int, str]:
    """⌊price × budget⌋ within the offer, plus the payoff of a device in a cluster."""
    payoff, because = _pay_payoff(offer, work)
    worth = whole(offer.price_microcredits * Fraction(work.budget))
    paid = min(worth, offer.most_microcredits)
    reasons = [because] if payoff else []
    if paid:
        capped = f", of which {credits(worth)} credits were claimed" if worth > paid else ""
        reasons.append(f"{credits(offer.price_microcredits)} credits × zCDP budget {work.budget:.6g}{capped}")
    return payoff + paid, "; ".join(reasons)


def _pay_variance(offer: Offer, work: Work) -> tuple[int, str]:
    """⌊r − θσ²⌋ between 0 and the offer's maximum; an answer without a stated variance counts as exact."""
    worth = whole(offer.base_microcredits - offer.slope_microcredits * Fraction(work.budget))
    paid = max(0, min(worth, offer.most_microcredits))
    base, slope = credits(offer.base_microcredits), credits(offer.slope_microcredits)
    return paid, f"{base} credits − {slope} credits × variance {work.budget:.6g}"


_RULES = {
    "none": _pay_nothing,
    "contribution": _pay_nothing,
    "payoff": _pay_payoff,
    "stackelberg": _pay_budget,
    "correlated": _pay_variance,
}


def _rule_for(incentive: str) -> Callable[[Offer, Work], tuple[int, str]]:
    """Return the settlement rule of a built-in incentive or of a plug-in."""
    if incentive in _RULES:
        return _RULES[incentive]
    plugin = incentive_plugins.REGISTRY.get(incentive)
    if plugin is None:
        raise BadParameters(f"no incentive {incentive!r} to settle by{incentive_plugins.REGISTRY.advice}")
    return plugin.due
