"""Clusters whose low-trust members sell privacy: payoffs and priced payments to the micro-credit, over the platform."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from coterie.records import WorkItem
from coterie.strategies.context import RoundContext
from tests.e2e.real_platform import RealPlatform
from tests.e2e.test_e2e_clusters import ALONE, MILLION, TOGETHER, Scripted, Society, change

COSTS = {"quadratic": 0.8, "linear": 0.04, "fixed": 0.0}
PER_QUALITY, PER_DEVICE = Fraction("0.52"), Fraction("1.2")
"""λ_p and λ_c: a cluster C of two or more is worth 0.52 Σq − 1.2|C|, and its payoffs sum to that."""


def acquaint(society: Society, a: str, b: str) -> None:
    """Twenty good meetings and five bad ones: enough trust for one cluster, too little for a raw update."""
    society.platform.meet((society.homes[a], society.homes[b]), good=20, bad=5)


def test_low_trust_members_are_paid_their_payoff_and_their_price(shared_platform: RealPlatform) -> None:
    """a and b are friends, v and w acquaintances; no device knows s."""
    society = Society(shared_platform, "a b v w s", [("a", "b")], "sale")
    acquaint(society, "v", "w")
    task = society.publish(
        preset="",
        topology="clusters",
        privacy="trust",
        incentive="stackelberg",
        rounds=2,
        quorum=1.0,
        parameters={"pricing": {"credits_per_point": 1.0}},
    )
    offered: dict[tuple[str, int], WorkItem] = {}

    def keep(name: str) -> Scripted:
        def remember(context: RoundContext) -> None:
            offered[name, context.work.round] = context.work

        return Scripted(change(ord(name)), remember)

    for name in society.homes:
        society.homes[name].save_private_settings({"costs": COSTS})
        society.run(name, task, keep(name))
    society.start(task)
    society.end(task)

    for number in (1, 2):
        check_round(society, task, number, offered)
    book = shared_platform.admin.verify_book()
    assert book.sound is True


def check_round(society: Society, task: str, number: int, offered: dict[tuple[str, int], WorkItem]) -> None:
    items = {name: offered[name, number] for name in society.homes}
    assert [sorted(items[name].role for name in pair) for pair in ("ab", "vw", "s")] == [
        ["head", "member"], ["head", "member"], ["solo"],
    ]  # fmt: skip
    (acquaintance,) = (name for name in "vw" if items[name].role == "member")
    sellers = {acquaintance, "s"}
    assert {name for name in items if items[name].noise_multiplier > 0.0} == sellers
    result = society.platform.admin.payments(task=task)
    payments = {payment.device_id: payment for payment in result if payment.round == number}
    payoffs: dict[str, int] = {}
    for name, item in items.items():
        payment = payments[society.id(name)]
        best = 0.0
        if name in sellers:
            price = item.price_microcredits / MILLION
            best = (price - COSTS["linear"]) / (2 * COSTS["quadratic"]) - item.external_risk
            assert best > 0.1
        assert payment.budget == pytest.approx(best)
        assert payment.price_microcredits == item.price_microcredits
        assert ("zCDP budget" in payment.because) == (item.price_microcredits > 0) == (name in sellers)
        worth = math.floor(item.price_microcredits * Fraction(payment.budget))
        payoffs[name] = payment.amount_microcredits - worth
    qualities = [Fraction(item.self_weight) for item in items.values()]
    value = PER_QUALITY * sum(qualities) - PER_DEVICE * 4  # s is unclustered and costs nothing
    assert sum(payoffs.values()) == math.floor(value * MILLION)  # to the micro-credit
    assert payoffs["s"] == pytest.approx(ALONE * MILLION, abs=1)
    assert payoffs["a"] == pytest.approx(TOGETHER * MILLION, abs=1)
    assert ALONE * MILLION < payoffs[acquaintance] < TOGETHER * MILLION
