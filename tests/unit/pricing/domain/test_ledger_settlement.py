"""What work is owed under each incentive, and what a short escrow pays of it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.privacy.accounting import gaussian_charge
from coterie.records.enums import ParticipationState, QuoteStatus
from services.pricing.domain.ledger import Payment
from services.pricing.domain.ledger_anomalies import describe_outliers, find_outliers
from services.pricing.domain.ledger_settlement import Work, compute_dues, digest_work, fit_escrow
from services.pricing.domain.records import Offer, Quote


def delivered(device: str, **fields: object) -> Work:
    return Work(device, "own_1", ParticipationState.DELIVERED, **fields)  # type: ignore[arg-type]


def priced(*offers: Offer, pot: int = 0) -> Quote:
    return Quote("tsk_1", 1, "stackelberg", QuoteStatus.OK, offers, pot)


def test_a_budget_is_paid_at_its_price_rounded_down() -> None:
    """1,370,001 µcr × 0.3 = 411,000.3 → 411,000."""
    quote = priced(Offer("dev_1", price_microcredits=1_370_001, most_microcredits=10**9))
    (due,) = compute_dues(quote, [delivered("dev_1", budget=0.3)])
    assert (due.amount_microcredits, due.price_microcredits) == (411_000, 1_370_001)
    assert due.because == "1.370001 credits × zCDP budget 0.3"


def test_a_claim_beyond_the_offer_is_cut() -> None:
    quote = priced(Offer("dev_1", price_microcredits=1_000_000, most_microcredits=500_000))
    (due,) = compute_dues(quote, [delivered("dev_1", budget=1e300)])
    assert due.amount_microcredits == 500_000
    assert "were claimed" in due.because


@pytest.mark.parametrize("outcome", ["late", "dropped", "rejected", "declined", ""])
def test_work_that_was_not_delivered_earns_nothing(outcome: str) -> None:
    quote = priced(Offer("dev_1", price_microcredits=10**6, most_microcredits=10**6))
    assert compute_dues(quote, [Work("dev_1", "own_1", ParticipationState(outcome), budget=0.5)]) == []


@pytest.mark.parametrize("budget", [math.nan, math.inf, -1.0])
def test_an_impossible_budget_earns_nothing(budget: float) -> None:
    offer = Offer("dev_1", 10**6, base_microcredits=10**6, most_microcredits=10**6)
    for incentive in ("stackelberg", "correlated"):
        assert compute_dues(replace(priced(offer), incentive=incentive), [delivered("dev_1", budget=budget)]) == []


def test_a_device_without_an_offer_earns_nothing() -> None:
    assert compute_dues(priced(), [delivered("dev_1", budget=0.5)]) == []


def test_an_answer_is_paid_its_base_less_its_noise() -> None:
    """1,000 − 30 × 2.5 = 925; 34 units of variance leave 0; less noise than expected earns no more than offered."""
    offer = Offer("dev_1", base_microcredits=1_000, slope_microcredits=30, most_microcredits=940)
    quote = Quote("tsk_1", 1, "correlated", QuoteStatus.OK, (offer,))
    for variance, paid in ((2.5, 925), (2.51, 924), (34.0, 0), (1e9, 0), (0.0, 940)):
        assert (
            sum(due.amount_microcredits for due in compute_dues(quote, [delivered("dev_1", budget=variance)])) == paid
        )


def test_device_with_a_payoff_has_no_share_of_the_pot() -> None:
    """dev_1 has a payoff of 70; the pot of 10 goes to dev_2 and dev_3 at 3:2."""
    quote = Quote("tsk_1", 1, "payoff", QuoteStatus.OK, (), 10)
    work = [
        delivered("dev_3", quality=0.2),
        delivered("dev_1", quality=9.0, payoff_microcredits=70),
        delivered("dev_2", quality=0.3),
    ]
    dues = compute_dues(quote, work)
    assert [(due.work.device_id, due.amount_microcredits) for due in dues] == [
        ("dev_1", 70),
        ("dev_2", 6),
        ("dev_3", 4),
    ]


def test_a_market_may_pay_a_payoff_and_a_pot_besides_the_price() -> None:
    quote = priced(Offer("dev_1", 100, most_microcredits=1000), Offer("dev_2", 100, most_microcredits=1000), pot=8)
    work = [
        delivered("dev_1", budget=2.0, quality=1.0),
        delivered("dev_2", budget=3.0, quality=1.0, payoff_microcredits=50),
    ]
    assert [due.amount_microcredits for due in compute_dues(quote, work)] == [208, 350]


def test_no_incentive_pays_nothing_even_when_something_is_claimed() -> None:
    quote = Quote("tsk_1", 1, "none", QuoteStatus.OK, (Offer("dev_1"),))
    assert compute_dues(quote, [delivered("dev_1", budget=3.0, payoff_microcredits=9)]) == []


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30), st.integers(0, 10**10))
def test_a_round_never_pays_more_than_the_escrow_nor_than_it_owes(owed: list[int], escrow: int) -> None:
    """Σ paid = min(Σ owed, escrow), and each device gets the same fraction within one micro-credit."""
    quote = Quote("tsk_1", 1, "payoff", QuoteStatus.OK, ())
    dues = compute_dues(quote, [delivered(f"dev_{k:02}", payoff_microcredits=amount) for k, amount in enumerate(owed)])
    paid = {due.work.device_id: due.amount_microcredits for due in fit_escrow(dues, escrow)}
    assert sum(paid.values()) == min(sum(owed), escrow)
    fraction = min(Fraction(1), Fraction(escrow, sum(owed)))
    for due in dues:
        assert abs(paid.get(due.work.device_id, 0) - due.amount_microcredits * fraction) < 1


def test_the_same_delivered_work_has_one_digest_in_any_order() -> None:
    charge = gaussian_charge("tsk_1", 1, "update", "example", 2.0)
    a, b = delivered("dev_1", budget=0.5, charges=(charge,)), delivered("dev_2", quality=1.0)
    gone = Work("dev_3", "own_1", ParticipationState.DROPPED)
    digest = digest_work([a, b, gone])
    assert digest == digest_work([replace(gone, outcome=ParticipationState.LATE), b, a])
    changed = [
        replace(a, budget=0.6),
        replace(a, quality=0.1),
        replace(a, payoff_microcredits=1),
        replace(a, owner_id="own_2"),
        replace(a, charges=()),
        replace(a, outcome=ParticipationState.LATE),
    ]
    assert len({digest, *(digest_work([other, b, gone]) for other in changed)}) == 1 + len(changed)


def test_a_settlement_of_the_first_release_is_known_again() -> None:
    """Its digest was over [device, owner, budget, quality, payoff or -1, charges] in JSON."""
    work = [delivered("dev_2", quality=1.5, payoff_microcredits=70), delivered("dev_1", budget=0.5)]
    text = '[["dev_1", "own_1", 0.5, 0.0, -1, []], ["dev_2", "own_1", 0.0, 1.5, 70, []]]'
    assert digest_work(work) == hashlib.sha256(text.encode()).hexdigest()


def payment(number: int, amount: int) -> Payment:
    return Payment(number, 0.0, "tsk_1", 2, f"dev_{number}", "own_1", amount, 0, 0.0, 0.0, "payoff")


def test_a_payment_far_from_the_median_stands_out() -> None:
    """Median 101, MAD 1: three deviations are 4.4, so 90 and 500 stand out and 105 does not."""
    made = [payment(k, amount) for k, amount in enumerate([100, 101, 102, 101, 105, 90, 500, 100, 102])]
    assert [p.amount_microcredits for p in find_outliers(made)] == [90, 500]
    assert "0.0005 credits to dev_6 in round 2 of tsk_1, where the median is 0.000101" in describe_outliers(made)[1]


def test_equal_payments_have_outliers_at_twice_the_median() -> None:
    made = [payment(k, amount) for k, amount in enumerate([10, 10, 10, 10, 19, 20])]
    assert [p.amount_microcredits for p in find_outliers(made)] == [20]
    assert find_outliers(made[:2]) == []


def test_device_with_excluded_update_is_paid_and_the_reason_says_so() -> None:
    quote = priced(Offer("dev_1", price_microcredits=1_000_000, most_microcredits=1_000_000))
    used, excluded = (
        delivered("dev_1", budget=0.25),
        replace(delivered("dev_1", budget=0.25), excluded_because="too far out"),
    )
    (plain,), (excluded_due,) = compute_dues(quote, [used]), compute_dues(quote, [excluded])
    assert excluded_due.amount_microcredits == plain.amount_microcredits == 250_000
    assert excluded_due.because == f"{plain.because}; paid although the task's rule excluded its update: too far out"
    assert digest_work([used]) == digest_work([excluded]), "reasons are not part of the digest"
