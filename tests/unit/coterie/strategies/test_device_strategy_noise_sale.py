"""Privacy sold in clusters: who sells, how much, what noise is left, and that a repeat sells the same."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy.ledger import Limit
from coterie.records import WorkItem
from coterie.strategies import strategy_for
from coterie.strategies.clusters import Clusters
from coterie.strategies.context import RoundContext
from tests.unit.coterie.strategies.test_device_strategy_clusters import OPEN_LIMIT, PARAMETERS, SIZE, Circle, direction

SEAT = 0.5
"""Spends ρ₀ = 1/(2·0.25) = 2."""
COSTS = {"quadratic": 0.5, "linear": 0.25, "fixed": 100.0}
SALE = 5.75
"""(r − b)/(2a) − αR = (7 − 0.25)/1 − 1."""


@pytest.fixture
def circle(tmp_path: Path) -> Circle:
    return Circle(tmp_path)


def selling(circle: Circle, role: str, **changes: Any) -> WorkItem:
    """Work with an offer of 7 credits at a risk of 1."""
    peers = (circle.peer("h", "head"),) if role == "member" else ()
    offer = {"incentive": "stackelberg", "price_microcredits": 7_000_000, "external_risk": 1.0}
    return circle.work(role, peers, **({"noise_multiplier": SEAT} | offer | changes))


def context_of(circle: Circle, work: WorkItem, limit: Limit = OPEN_LIMIT, **costs: float) -> RoundContext:
    return replace(circle.context("a", work, direction(1), limit), private={"costs": COSTS | costs})


def offered(most: int) -> dict[str, Any]:
    return {**PARAMETERS, "offer": {"expected": 1.0, "most_microcredits": most}}


@pytest.mark.parametrize("role", ["member", "solo"])
def test_what_is_sold_is_best_for_the_owner_and_comes_off_the_noise(circle: Circle, role: str) -> None:
    """ρ₀ + ρ = 7.75 leaves σ = 1/√15.5 = 0.254; the fixed cost is the work's, which the payoff is for."""
    work = selling(circle, role)
    assert isinstance(strategy_for(work), Clusters)
    delivery = Clusters().prepare(context_of(circle, work))
    assert delivery.budget == pytest.approx(SALE)
    (use,) = delivery.privacy
    assert (use.mechanism, use.unit) == ("gaussian", "device")
    assert use.multiplier == pytest.approx(1.0 / math.sqrt(15.5))
    (entry,) = circle.home("a").ledger().history()
    assert entry.charge.rho == pytest.approx(7.75)


def test_the_noise_that_leaves_is_what_was_sold_down_to(circle: Circle) -> None:
    delivery = Clusters().prepare(context_of(circle, selling(circle, "solo")))
    assert delivery.tensors is not None
    noise = delivery.tensors["w"] - direction(1)
    assert noise.std() == pytest.approx(0.254, rel=0.15)
    quiet = Clusters().prepare(context_of(circle, selling(circle, "solo", round=2, price_microcredits=0)))
    assert quiet.tensors is not None
    assert (quiet.tensors["w"] - direction(1)).std() == pytest.approx(SEAT, rel=0.15)


@pytest.mark.parametrize(
    "changes",
    [
        {"price_microcredits": 0},
        {"price_microcredits": 1_200_000},  # (1.2 − 0.25)/1 − 1 < 0
        {"incentive": "payoff"},
        {"parameters": offered(0)},
    ],
)
def test_without_price_worth_it_seat_stands_and_round_is_not_declined(circle: Circle, changes: dict[str, Any]) -> None:
    delivery = Clusters().prepare(context_of(circle, selling(circle, "member", **changes)))
    assert delivery.budget == 0.0
    assert [use.multiplier for use in delivery.privacy] == [pytest.approx(SEAT)]


def test_no_more_is_sold_than_is_paid_for(circle: Circle) -> None:
    delivery = Clusters().prepare(context_of(circle, selling(circle, "solo", parameters=offered(3_500_000))))
    assert delivery.budget == pytest.approx(0.5)


def test_the_owners_limit_allows_the_seat_but_not_the_sale(circle: Circle) -> None:
    """At δ = 10⁻⁵ noise of 0.5 has ε of about 10, noise of 0.254 above 20."""
    context = context_of(circle, selling(circle, "solo"), Limit(15.0, 1e-5, "device"))
    delivery = Clusters().prepare(context)
    assert delivery.budget == 0.0
    assert [use.multiplier for use in delivery.privacy] == [pytest.approx(SEAT)]


def test_trusted_members_and_heads_sell_nothing_whatever_they_are_offered(circle: Circle) -> None:
    circle.acquaint("a", "h")
    member = Clusters().prepare(context_of(circle, selling(circle, "member", noise_multiplier=0.0)))
    assert (member.budget, [charge.mechanism for charge in member.privacy]) == (0.0, ["raw"])
    offer: dict[str, Any] = {"incentive": "stackelberg", "price_microcredits": 7_000_000}
    together = circle.close(("a",), direction(2), **offer)
    assert (together.form, together.budget) == ("sum", 0.0)
    alone = circle.close(("b",), direction(2), round=2, **offer)
    assert (alone.form, alone.budget) == ("mean", 0.0)
    assert [use.multiplier for use in alone.privacy] == [pytest.approx(0.6)]


@pytest.mark.parametrize("role", ["member", "solo"])
def test_repeat_after_crash_claims_the_release_though_costs_changed(circle: Circle, role: str) -> None:
    work = selling(circle, role)
    first = Clusters().prepare(context_of(circle, work))
    again = Clusters().prepare(context_of(circle, work, quadratic=5.0))
    assert (again.budget, again.privacy) == (first.budget, first.privacy)
    assert circle.home("a").ledger().spent().releases == 1


def test_a_head_takes_the_letter_of_a_member_that_sold(circle: Circle) -> None:
    Clusters().prepare(context_of(circle, selling(circle, "member")))
    delivery = circle.close(("a",), np.zeros(SIZE), trusted=False, incentive="stackelberg")
    assert [(report.device_id, report.outcome) for report in delivery.members] == [("a", "delivered")]


@settings(max_examples=40)
@given(
    assignment=st.floats(0.01, 10.0),
    price=st.integers(0, 10**9),
    risk=st.floats(0.0, 10.0),
    quadratic=st.floats(0.01, 100.0),
)
def test_no_device_is_noisier_than_its_assignment_nor_raw(
    tmp_path_factory: pytest.TempPathFactory, assignment: float, price: int, risk: float, quadratic: float
) -> None:
    circle = Circle(tmp_path_factory.mktemp("circle"))
    work = selling(circle, "solo", noise_multiplier=assignment, price_microcredits=price, external_risk=risk)
    limit = Limit(1e12, 1e-5, "device")
    delivery = Clusters().prepare(context_of(circle, work, limit, quadratic=quadratic))
    (use,) = delivery.privacy
    assert 0.0 < use.multiplier <= assignment * (1.0 + 1e-12)
    assert 0.5 / use.multiplier**2 == pytest.approx(0.5 / assignment**2 + delivery.budget, rel=1e-9)
