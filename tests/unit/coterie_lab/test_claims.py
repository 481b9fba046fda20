"""Verdicts are computed from margins over seeds."""

from __future__ import annotations

import math

import pytest

from coterie_lab.claims import AtLeast, AtMost, Monotone, Ordered, Verdict, judge
from coterie_lab.readings import Reading, Seeded

NOWHERE = float("nan")


def seed(number: int, *readings: Reading) -> Seeded:
    return Seeded(number, readings)


def values(*margins: float) -> list[Seeded]:
    return [seed(k, Reading("saved", "BeTTa", 0.8, value)) for k, value in enumerate(margins)]


def test_a_claim_that_holds_in_every_seed_beyond_its_spread_is_reproduced() -> None:
    """Margins 0.1, 0.2, 0.3: mean 0.2, t(0.975, 2) = 4.303, sd 0.1, half width 4.303·0.1/√3 = 0.248 > 0.2."""
    claim = AtLeast("saves 20 %", "saved", "BeTTa", 0.2, 0.8)
    undecided = judge(claim, values(0.3, 0.4, 0.5))
    assert undecided.verdict is Verdict.NOT_TESTABLE
    assert undecided.margin == pytest.approx(0.2)
    assert undecided.spread == pytest.approx(4.3027 * 0.1 / math.sqrt(3), rel=1e-4)
    assert judge(claim, values(0.38, 0.4, 0.42)).verdict is Verdict.REPRODUCED
    assert judge(claim, values(0.02, 0.0, 0.01)).verdict is Verdict.DIFFERS


def test_exactly_at_the_bound_in_every_seed_holds() -> None:
    assert judge(AtMost("at most 0.5", "saved", "BeTTa", 0.5), values(0.5, 0.5, 0.5)).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize("margins", [[], [0.9], [math.nan, 0.9, 0.9]])
def test_one_seed_none_or_no_number_decides_nothing(margins: list[float]) -> None:
    assert judge(AtLeast("", "saved", "BeTTa", 0.2), values(*margins)).verdict is Verdict.NOT_TESTABLE


def test_what_was_not_measured_is_not_testable() -> None:
    judged = judge(AtLeast("", "saved", "PDOO", 0.2), values(0.3, 0.4))
    assert (judged.verdict, judged.seeds) == (Verdict.NOT_TESTABLE, 0)


def test_an_order_is_as_strong_as_its_smallest_step_over_all_x() -> None:
    readings = [
        Reading("cost", who, float(n), value)
        for who, costs in {"market": (5.0, 14.0), "agnostic": (6.0, 14.5)}.items()
        for n, value in zip((20, 50), costs, strict=True)
    ]
    claim = Ordered("the market is cheapest", "cost", ("market", "agnostic"))
    assert claim.margin(seed(0, *readings)) == pytest.approx(0.5)
    assert Ordered("", "cost", ("agnostic", "market")).margin(seed(0, *readings)) == pytest.approx(-1.0)
    assert Ordered("", "cost", ("market", "unknown")).margin(seed(0, *readings)) is None


def test_bars_without_x_are_ordered_too() -> None:
    bars = [Reading("payoff", who, NOWHERE, value) for who, value in (("alone", 1.0), ("clusters", 3.0))]
    assert Ordered("", "payoff", ("alone", "clusters")).margin(seed(0, *bars)) == pytest.approx(2.0)


def test_an_order_is_not_broken_by_rounding() -> None:
    bars = [Reading("payoff", who, NOWHERE, value) for who, value in (("search", 0.1 + 0.2), ("bound", 0.3))]
    assert Ordered("", "payoff", ("search", "bound")).margin(seed(0, *bars)) == 0.0


def test_curve_rises_by_its_pairs_may_level_off_and_flat_one_does_neither() -> None:
    def curve(*heights: float) -> Seeded:
        return seed(0, *(Reading("loss", "S1", float(x), y) for x, y in enumerate(heights)))

    rises, falls = (Monotone("", "loss", ("S1",), direction) for direction in ("rises", "falls"))
    assert rises.margin(curve(1, 2, 4, 8)) == pytest.approx(0.1)
    assert falls.margin(curve(8, 4, 2, 1)) == pytest.approx(0.1)
    assert rises.margin(curve(8, 4, 2, 1)) == pytest.approx(-1.9)
    assert rises.margin(curve(0, 0, 0.5, 1, 1, 1)) == pytest.approx(0.1)
    assert rises.margin(curve(1, 3, 2, 4)) == pytest.approx((5 - 1) / 6 - 0.9)
    assert rises.margin(curve(3, 3, 3, 3)) == pytest.approx(-0.9)
    assert rises.margin(curve(1, 2)) is None
