"""The double auction in SARDA's place: where it clears, by hand and by brute force, and what a liar gets of it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from coterie.privacy_sale import PrivateCosts, best_budget, utility
from services.pricing.domain.auction import Sale, asked, clear, clear_within, hold
from services.pricing.domain.budgets import Market
from services.pricing.domain.incentive_stackelberg import Before, quote_stackelberg
from services.pricing.domain.incentives import StackelbergParameters
from services.pricing.domain.influence import leakage
from services.pricing.domain.money import MICRO
from services.pricing.domain.records import Purse, Quote


def market(ties: list[list[float]], weights: list[float], quadratic: float = 1.0, linear: float = 0.0) -> Market:
    n = len(weights)
    return Market(
        leakage(sparse.csr_array(np.array(ties, dtype=np.float64)), isolated="keep"),
        np.full(n, quadratic),
        np.full(n, linear),
        np.zeros(n),
        np.array(weights),
        risk_weight=0.5,
        balance=0.5,
    )


def some_market(n: int, seed: int) -> Market:
    rng = np.random.default_rng(seed)
    ties = rng.uniform(0.1, 1.0, (n, n)) * (rng.random((n, n)) < 0.6)
    np.fill_diagonal(ties, 0.0)
    told = leakage(sparse.csr_array(ties), isolated="keep")
    a, b, weight = rng.uniform(0.8, 1.2, n), rng.uniform(0.02, 0.06, n), rng.uniform(0.5, 1.5, n)
    return Market(told, a, b, np.zeros(n), weight, risk_weight=0.3)


def test_a_device_alone_clears_where_worth_is_marginal_cost() -> None:
    """τ = ½, t = 1, ε = 2, a = 1, b = 0: 2/ρ² = 2ρ, so ρ = 1 at p = 2; in round 16 2/16 = 2ρ³·… ρ = 16^(−1/3)."""
    found = clear(market([[0.0]], [2.0]), 1)
    assert (found.budgets.tolist(), found.prices.tolist()) == ([1.0], [2.0])
    assert clear(market([[0.0]], [2.0]), 16).budgets[0] == pytest.approx(16 ** (-1 / 3))


def test_two_who_know_each_other_ask_for_the_risk_one_hop_away() -> None:
    """α = ½, W̃ = exchange: 3/ρ² = 2(ρ + ρ/2) = 3ρ, so ρ = 1 at p = 3 each; K = 5 hops change nothing."""
    found = clear(market([[0.0, 1.0], [1.0, 0.0]], [3.0, 3.0]), 1)
    assert found.budgets == pytest.approx([1.0, 1.0])
    assert found.prices == pytest.approx([3.0, 3.0])
    assert found.converged
    assert found.risk == pytest.approx([0.5, 0.5])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(0, 1000), st.integers(1, 30))
def test_at_the_prices_found_both_sides_want_what_is_traded(n: int, seed: int, number: int) -> None:
    """Supply (p − b)/(2a) − h and demand √(τε/((1 − τ)tp)) are the budget, for every device at once."""
    game = some_market(n, seed)
    found = clear(game, number)
    supply = (found.prices - game.cost_linear) / (2 * game.cost_quadratic) - found.risk
    demand = np.sqrt(game.balance * game.accuracy_weight / ((1 - game.balance) * number * found.prices))
    assert found.converged
    assert found.budgets == pytest.approx(supply, abs=1e-12)
    assert found.budgets == pytest.approx(demand, rel=1e-9)
    assert found.iterations <= 5 + math.ceil(math.log(1e-16) / math.log(0.3))


def test_no_other_budgets_on_a_grid_clear_two_devices() -> None:
    """Brute force: of 160,000 pairs of budgets the one with the least excess of worth over ask is the one found."""
    game = some_market(2, 7)
    found = clear(game, 1)
    grid = np.linspace(0.05, 2.0, 400)

    def excess(pair: tuple[float, float]) -> float:
        rho = np.array(pair)
        held = game.risk_weight * game.leakage.forward @ rho
        ask = game.cost_linear + 2 * game.cost_quadratic * (rho + held)
        return float(np.abs(game.accuracy_weight / rho**2 - ask).max())

    rough = min(product(grid[::4], grid[::4]), key=excess)
    near = [np.abs(grid - each) < 0.05 for each in rough]
    best = min(product(grid[near[0]], grid[near[1]]), key=excess)
    assert list(best) == pytest.approx(found.budgets.tolist(), abs=0.005)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(0, 100), st.floats(0, 3))
def test_the_buyer_never_bids_beyond_its_purse(n: int, seed: int, credits: float) -> None:
    game = some_market(n, seed)
    found = clear_within(game, 1, credits)
    assert found.spending <= credits + 1e-12
    free = clear(game, 1)
    assert found.spending >= min(credits, free.spending) * (1 - 1e-6) - 1e-9, "and all of it is used"


def test_asks_are_the_median_of_what_other_owners_sold() -> None:
    """At b = 0, h = 0, ρ = 1 prices 2, 4, 6 say a = 1, 2, 3; without its own: 2.5, 2, 1.5; nobody else: the prior."""
    sales = [Sale("ada", 2.0, 0.0, 1.0), Sale("bob", 4.0, 0.0, 1.0), Sale("cyd", 6.0, 0.0, 1.0)]
    assert asked(["ada", "bob", "cyd", "dan"], sales, 9.0, 0.0).tolist() == [2.5, 2.0, 1.5, 2.0]
    assert asked(["ada", "bob"], sales[:1], 9.0, 0.0).tolist() == [9.0, 1.0]
    idle = [Sale("ada", 2.0, 0.0, 0.0), Sale("bob", 0.01, 0.0, 1.0)]
    assert asked(["cyd"], idle, 9.0, 0.04).tolist() == [9.0], "nothing sold, or at a loss, says nothing"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0.1, 5.0)), max_size=12))
def test_medians_without_ones_own_are_those_of_the_list_without_them(told: list[tuple[str, float]]) -> None:
    sales = [Sale(owner, 2 * quadratic, 0.0, 1.0) for owner, quadratic in told]
    for owner, found in zip("abcdef", asked(list("abcdef"), sales, 9.0, 0.0), strict=True):
        others = [quadratic for who, quadratic in told if who != owner]
        assert found == pytest.approx(float(np.median(others)) if others else 9.0)


NAMES = [f"dev_{k}" for k in range(6)]
OWNERS = ["own_0", "own_1", "own_2", "own_3", "own_4", "own_4"]


def play(number: int, sales: list[Sale]) -> Quote:
    ties = sparse.csr_array(np.ones((6, 6)) - np.eye(6))
    told = StackelbergParameters(solver="auction", risk_weight=0.2)
    return quote_stackelberg("tsk", number, NAMES, ties, told, Purse(10**12, 1), before=Before(OWNERS, sales))


def task(liar: int, factor: float, rounds: int = 4) -> tuple[list[list[int]], list[float]]:
    """Prices of each round, and what the liar gets in it by its true costs when it sells `factor` times its best."""
    costs = [PrivateCosts(a, 0.04) for a in (0.8, 0.9, 1.0, 1.1, 1.2, 1.0)]
    sales, prices, gained = list[Sale](), list[list[int]](), list[float]()
    for number in range(1, rounds + 1):
        quote = play(number, sales)
        prices.append([offer.price_microcredits for offer in quote.offers])
        sales = []
        for k, offer in enumerate(quote.offers):
            price = offer.price_microcredits / MICRO
            sold = best_budget(price, offer.external_risk, costs[k], 1.0)
            sold = min(sold * (factor if k == liar else 1.0), offer.most_microcredits / offer.price_microcredits)
            sales.append(Sale(OWNERS[k], price, offer.external_risk, sold))
            if k == liar:
                gained.append(utility(price, sold, offer.external_risk, costs[k], 1.0))
    return prices, gained


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.7, 1.5, 3.0])
def test_who_sells_less_or_more_than_is_best_gains_nothing(factor: float) -> None:
    """Its sales move neither its price nor the risk it is told in the next round, so that every round is its loss."""
    honest_prices, honest = task(0, 1.0)
    prices, lying = task(0, factor)
    assert prices[1][0] == honest_prices[1][0]
    assert all(lied < told for lied, told in zip(lying[:2], honest[:2], strict=True))
    assert sum(lying) < sum(honest)


def test_each_device_has_its_place_in_the_auction_of_what_others_ask() -> None:
    game, asks = some_market(4, 3), np.array([1.0, 2.0, 1.0, 2.0])
    found = hold(game, asks, 1)
    for ask in (1.0, 2.0):
        alike = clear(replace(game, cost_quadratic=np.full(4, ask)), 1)
        assert found.prices[asks == ask].tolist() == alike.prices[asks == ask].tolist()
        assert found.budgets[asks == ask].tolist() == alike.budgets[asks == ask].tolist()


def test_an_owners_devices_do_not_price_each_other() -> None:
    honest, _ = task(4, 1.0)
    lying, _ = task(4, 3.0)
    assert lying[1][4:] == honest[1][4:], "neither its own nor its sister's"
    assert lying[1][:4] != honest[1][:4]


def test_later_iterations_answer_what_devices_really_ask() -> None:
    """Devices three times as dear as expected: the second round offers more than the first would, and sells less."""
    first = play(1, [])
    dear = [
        Sale(f"other_{k}", o.price_microcredits / MICRO, o.external_risk, o.expected / 3)
        for k, o in enumerate(first.offers)
    ]
    second = play(1, dear)
    assert second.details["bids"] == 6
    assert all(b.price_microcredits > a.price_microcredits for a, b in zip(first.offers, second.offers, strict=True))
    assert all(b.expected < a.expected for a, b in zip(first.offers, second.offers, strict=True))
