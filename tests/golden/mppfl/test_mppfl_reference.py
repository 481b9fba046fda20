"""[MPPFL] published and recomputed numbers: reference means, sweeps, price of anarchy, and the paper's slips.

The reference means were taken over other draws of the same random networks; two samples of five networks differ by a
few percent in level (tolerance 6 %) while ratios of mechanisms on the same networks agree within 1 % (random: 5 %).
"""

from itertools import pairwise

import numpy as np
import pytest

from coterie_lab.market import REFERENCE, Settings, anarchy, by_size, convergence, draw_market, sweep
from coterie_lab.market_baselines import NoFeasiblePrice, compare, one_hop
from services.pricing.domain.budgets import Market, server_cost, welfare
from services.pricing.domain.followers import agnostic_budgets, equilibrium, feasible_interval, linear_response
from services.pricing.domain.game import play
from services.pricing.domain.influence import Matrix, leakage
from services.pricing.domain.leaders import exact_price, frozen_price, mean_field_price
from services.pricing.domain.welfare import optimum, price_of_anarchy


def market_of(weights: Matrix, alpha: float, a: float = 1.0, b: float = 0.0, hops: int = 5) -> Market:
    ones = np.ones(len(weights))
    return Market(leakage(weights, hops=hops), a * ones, b * ones, 0 * ones, ones, alpha)


def test_the_reference_means_for_twenty_and_fifty_devices() -> None:
    constant, own = by_size((20, 50), "constant"), by_size((20, 50), "own")
    for n in (20, 50):
        result = {**constant[n], "own": own[n]["agnostic"]}
        base = result["market"]
        for name, (cost, worth) in REFERENCE[n].items():
            assert result[name][0] == pytest.approx(cost, rel=0.06), (n, name)
            assert result[name][1] == pytest.approx(worth, rel=0.06), (n, name)
            close = 0.05 if name == "random" else 0.01
            ratio = REFERENCE[n]["market"]
            assert result[name][0] / base[0] == pytest.approx(cost / ratio[0], rel=close), (n, name)
            assert result[name][1] / base[1] == pytest.approx(worth / ratio[1], rel=close), (n, name)


def test_eighty_devices_keep_the_papers_ordering_under_constant_prices() -> None:
    """Figures 7 and 8: the market is cheapest and richest."""
    result = by_size((80,), "constant")[80]
    for name in ("agnostic", "random", "fixed", "proxy"):
        assert result["market"][0] < result[name][0]
        assert result["market"][1] > result[name][1]
    assert result["market"][0] == pytest.approx(23.269, rel=0.06)


@pytest.mark.parametrize(("factor", "cost", "worth"), [(0.4, 12.44, 1.06), (0.8, 7.32, 1.52), (1.5, 5.87, 0.84)])
def test_no_fixed_budget_beats_the_market(factor: float, cost: float, worth: float) -> None:
    result = by_size((20,), "constant", fixed_factor=factor)[20]
    assert result["fixed"][0] == pytest.approx(cost, rel=0.06)
    assert result["fixed"][1] == pytest.approx(worth, rel=0.08)
    assert result["market"][0] < result["fixed"][0]
    assert result["market"][1] > result["fixed"][1]


def test_cost_rises_and_welfare_falls_with_the_risk_weight() -> None:
    """Figures 5 and 9; reference on one network, level tolerance 3 %, relative growth 0.5 %."""
    points = sweep(Settings(risk_weight=alpha) for alpha in (0.01, 0.03, 0.05, 0.07, 0.1))
    costs, worth = (list(column) for column in zip(*points, strict=True))
    assert costs == sorted(costs)
    assert worth == sorted(worth, reverse=True)
    assert costs == pytest.approx([5.796, 5.871, 5.944, 6.017, 6.124], rel=0.03)
    assert worth == pytest.approx([1.831, 1.798, 1.761, 1.719, 1.649], rel=0.03)
    assert costs[-1] / costs[0] == pytest.approx(6.124 / 5.796, rel=0.005)
    assert worth[-1] / worth[0] == pytest.approx(1.649 / 1.831, rel=0.005)


def test_cost_rises_and_welfare_falls_with_the_hops() -> None:
    """Figures 6 and 10."""
    points = sweep(Settings(hops=hops) for hops in range(1, 7))
    costs, worth = (list(column) for column in zip(*points, strict=True))
    assert costs == sorted(costs)
    assert worth == sorted(worth, reverse=True)
    assert costs == pytest.approx([5.857, 5.903, 5.927, 5.938, 5.944, 5.947], rel=0.03)
    assert worth == pytest.approx([1.804, 1.781, 1.770, 1.764, 1.761, 1.759], rel=0.03)
    assert costs[-1] / costs[0] == pytest.approx(5.947 / 5.857, rel=0.002)


def test_first_and_last_price() -> None:
    """r*(1) = 1.37, r*(30) = 0.46, mean budget 0.28 (spec 1.9); within 3 % on our network."""
    market = draw_market(20, np.random.default_rng(3))
    series = compare(market, 30, "common", np.random.default_rng(0))["market"]
    assert series.prices[0] == pytest.approx(1.37, rel=0.03)
    assert series.prices[-1] == pytest.approx(0.46, rel=0.03)
    assert series.budgets.mean() == pytest.approx(0.28, rel=0.04)


def test_the_price_of_anarchy_tends_to_no_one() -> None:
    """Spec 1.7, N = 20, t = 10: 1.00045, 1.0018, 1.0114, 1.0471. Theorem 8 says 1; the excess grows like α²."""
    result = anarchy([0.01, 0.02, 0.05, 0.1])
    assert [value - 1 for value in result] == pytest.approx([0.00045, 0.0018, 0.0114, 0.0471], rel=0.06)
    assert (result[1] - 1) / (result[0] - 1) == pytest.approx(4, rel=0.03)


def test_theorem_7_holds_and_is_weak() -> None:
    """PoA(SA) > 1/(1 − ε²), ε = αS·w_min/(1 − α²S²)·(αS − m_l/m_h): true on every draw, and far below the real one."""
    for seed in range(20):
        market = draw_market(15, np.random.default_rng(seed), Settings(risk_weight=0.1, discount=0.6))
        price, spread = 0.8, market.contraction
        m = market.target(price)
        shift = spread * market.leakage.forward.data.min() / (1 - spread**2) * (spread - m.min() / m.max())
        real = price_of_anarchy(optimum(market, price).welfare, welfare(market, price, agnostic_budgets(market, price)))
        assert real > 1 / (1 - shift**2) > 1
        assert real - 1 > 10 * (1 / (1 - shift**2) - 1)


def test_dear_linear_costs_make_the_price_of_anarchy_infinite() -> None:
    """b = 1, late round (b/r about 0.75): Wf(NE) < 0 < max (spec 1.7)."""
    market = draw_market(20, np.random.default_rng(3), Settings(risk_weight=0.1, linear=(1.0, 1.0)))
    outcome = play(market, "mean-field", 30)
    assert outcome.welfare < 0 < outcome.welfare_optimum
    assert outcome.price_of_anarchy == np.inf
    assert (outcome.utilities < 0).mean() > 0.5  # the paper has no participation constraint


def test_a_star_has_a_spectral_norm_far_above_its_row_sums() -> None:
    """Spec 1.2: N = 80, α = 0.1, λ = 0.5, K = 5: α‖Σ‖₂ = 1.168 while αS = 0.194: no l2 contraction."""
    star = np.zeros((80, 80))
    star[0, 1:] = star[1:, 0] = 1
    sigma = leakage(star)
    assert sigma.matrix is not None
    assert 0.1 * np.linalg.norm(sigma.matrix, 2) == pytest.approx(1.168, abs=5e-4)
    assert 0.1 * sigma.row_sum_limit == pytest.approx(0.194, abs=5e-4)
    market = market_of(star, 0.1)
    answer = equilibrium(market, 1.0)
    assert answer.converged
    assert answer.residual < 1e-11


def test_the_papers_box_is_not_invariant() -> None:
    """Spec 1.7: two equal devices, α = 0.1, m = 0.45: ρ = 0.45/1.13125 = 0.3978 leaves the box {0.45/1.19375 = 0.3770},
    because the row sums of Σ (1.3125) are below S (1.9375). With S_min in ρ_h the box holds it."""
    market = market_of(np.array([[0, 1], [1, 0.0]]), 0.1, b=0.1)
    rho = float(equilibrium(market, 1.0).budgets[0])
    spread, m = market.contraction, 0.45
    low = high = (m - spread * m) / (1 - spread**2)
    assert rho == pytest.approx(0.3978, abs=5e-5)
    assert high == pytest.approx(0.3770, abs=5e-5)
    smallest = float(market.leakage.apply(np.ones(2)).min())
    assert low <= rho <= m - 0.1 * smallest * low


def test_iterating_equation_7_as_printed_diverges() -> None:
    """Spec 1.6: from 1.001 r* the printed map r ← RHS(r) moves away from the root, growing and alternating."""
    market = draw_market(20, np.random.default_rng(3))
    root = frozen_price(market, np.zeros(20), 10).price
    a, b, eps = market.cost_quadratic, market.cost_linear, market.accuracy_weight
    tau, inverse, h = market.balance, float(np.sum(1 / a)), float(np.sum(b / (2 * a)))

    def printed(r: float) -> float:
        return tau / (1 - tau) * float(np.sum(2 * a * eps / inverse / (10 * (r - b) ** 2))) + h / inverse

    assert printed(root) == pytest.approx(root, rel=1e-9)  # our root solves the paper's (7)
    r, gaps = 1.001 * root, []
    for _ in range(6):
        r = printed(r)
        gaps.append(r - root)
    assert all(abs(later) > 1.3 * abs(earlier) for earlier, later in pairwise(gaps))
    assert all(later * earlier < 0 for earlier, later in pairwise(gaps))


def test_algorithm_1_needs_the_new_risk() -> None:
    """Rounds to 1e-3: new risk 2-3, old risk 4-6; at αS = 0.82 the old reading does not settle (spec 1.6)."""
    easy = draw_market(20, np.random.default_rng(3))

    def steps(errors: list[float]) -> int:
        return next((k for k, error in enumerate(errors, start=1) if error <= 1e-3), len(errors) + 1)

    assert steps(convergence(easy, 1, fresh=True)) in (2, 3)
    assert steps(convergence(easy, 1, fresh=False)) in (4, 5, 6)
    hard = draw_market(20, np.random.default_rng(3), Settings(risk_weight=0.2, discount=0.9))
    assert hard.contraction == pytest.approx(0.82, abs=0.01)
    assert steps(convergence(hard, 1, fresh=True)) <= 15
    assert convergence(hard, 1, fresh=False)[-1] > 1e-3


def test_the_exact_leader_pays_a_little_less() -> None:
    """Price lower by 1.5 % at αS = 0.10; cost lower by well under 0.2 %; welfare lower too (spec 1.8)."""
    market = draw_market(20, np.random.default_rng(3))
    exact, field = play(market, "exact", 10), play(market, "mean-field", 10)
    assert market.contraction == pytest.approx(0.097, abs=1e-3)
    assert 1 - exact.price / field.price == pytest.approx(0.015, abs=0.003)
    assert 0 < 1 - exact.server_cost / field.server_cost < 0.002
    assert exact.welfare < field.welfare


def test_agnostic_devices_are_dearer_exactly_when_the_spec_says() -> None:
    """Homogeneous devices at a common price: dearer iff x(1 + x) > 1 − b/r, x = α·rowsum(Σ) (spec 1.8)."""
    complete = np.ones((10, 10)) - np.eye(10)
    for b in (0.02, 0.3, 0.8, 2.0, 5.0):
        market = market_of(complete, 0.2, b=b)
        response = linear_response(market)
        price = mean_field_price(market, response, 5).price
        x = 0.2 * float(market.leakage.apply(np.ones(10))[0])
        aware = server_cost(market, price, response.budgets(price), 5)
        blind = server_cost(market, price, agnostic_budgets(market, price), 5)
        assert (blind > aware) == (x * (1 + x) > 1 - b / price)


def test_uneven_costs_are_mostly_infeasible_and_even_ones_never() -> None:
    """Spec 1.5: a over two decades is infeasible in about 84 % of draws; a within ±20 % and αS < min a/max a never."""
    rng = np.random.default_rng(11)
    empty = {True: 0, False: 0}
    for _ in range(100):
        base = draw_market(20, rng, Settings(risk_weight=rng.uniform(0.01, 0.1), discount=rng.uniform(0.1, 0.9)))
        for uneven in (True, False):
            a = 10.0 ** rng.uniform(-1, 1, 20) if uneven else rng.uniform(0.8, 1.2, 20)
            market = Market(base.leakage, a, base.cost_linear, base.cost_fixed, base.accuracy_weight, base.risk_weight)
            if uneven or market.contraction < a.min() / a.max():
                empty[uneven] += feasible_interval(linear_response(market)).empty
    assert empty[False] == 0
    assert empty[True] > 60


def test_an_infeasible_market_has_no_price_and_nothing_to_compare() -> None:
    complete = np.ones((3, 3)) - np.eye(3)
    market = Market(
        leakage(complete), np.array([0.01, 50, 1]), np.full(3, 0.04), np.zeros(3), np.ones(3), risk_weight=0.4
    )
    assert exact_price(market, linear_response(market), 1).status == "infeasible"
    with pytest.raises(NoFeasiblePrice):
        compare(market, 3, "own", np.random.default_rng(0))


def test_the_proxy_maximises_one_hop_welfare_only() -> None:
    market = draw_market(12, np.random.default_rng(5), Settings(risk_weight=0.1))
    seen = one_hop(market)
    proxy = optimum(seen, 0.8).budgets
    assert welfare(seen, 0.8, proxy) >= welfare(seen, 0.8, optimum(market, 0.8).budgets)
    assert welfare(market, 0.8, proxy) < optimum(market, 0.8).welfare


def test_degenerate_prices_of_anarchy_have_names() -> None:
    assert np.isnan(price_of_anarchy(0.0, 0.0))
    assert price_of_anarchy(1.0, -1.0) == np.inf
    assert price_of_anarchy(1.1, 1.0) == pytest.approx(1.1)
