"""Offers of the market and of a survey: within the round's budget, and the answers of selfish devices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from coterie.parameters.pricing import CorrelatedParameters, StackelbergParameters
from coterie.privacy import budget_choice
from coterie.records.enums import ParticipationState
from services.pricing.domain.correlated_users import Survey, hidden_variances
from services.pricing.domain.correlated_users import utilities as survey_utilities
from services.pricing.domain.incentive_correlated import MOST_USERS, SurveyTooLarge, quote_correlated
from services.pricing.domain.incentive_stackelberg import Data, accuracy_weights, quote_stackelberg
from services.pricing.domain.ledger_settlement import Work, compute_dues
from services.pricing.domain.money import MICRO
from services.pricing.domain.records import Quote, RoundBudget

ESCROW = 1_000_000_000


def some_ties(n: int, seed: int = 1, density: float = 0.5) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(0.1, 1.0, (n, n)) * (rng.random((n, n)) < density), 1)
    return sparse.csr_array(upper + upper.T)


def names(n: int) -> list[str]:
    return [f"dev_{k:03}" for k in range(n)]


def market_quote(n: int, round_budget: RoundBudget, seed: int = 1, number: int = 1, **keys: object) -> Quote:
    parameters = StackelbergParameters.read(keys)
    return quote_stackelberg("tsk_1", number, names(n), some_ties(n, seed), parameters, round_budget)


def test_strangers_pay_the_textbook_price() -> None:
    """One device alone, a = 1, b = 0.04, ε = 1, τ = 0.5: r minimises ½/ρ + ½rρ with ρ = (r − 0.04)/2, on a grid."""
    quote = quote_stackelberg(
        "tsk_1", 1, ["a"], sparse.csr_array((1, 1)), StackelbergParameters(), RoundBudget(ESCROW, 1)
    )
    grid = np.linspace(0.05, 3, 200_001)
    rho = (grid - 0.04) / 2
    best = grid[np.argmin(0.5 / rho + 0.5 * grid * rho)]
    (offer,) = quote.offers
    assert offer.price_microcredits / MICRO == pytest.approx(best, abs=1e-4)
    assert offer.external_risk == 0.0
    assert offer.expected == pytest.approx((best - 0.04) / 2, abs=1e-4)
    assert offer.most_microcredits == pytest.approx(2 * offer.price_microcredits * offer.expected, abs=2)


def test_devices_with_the_expected_costs_sell_what_is_expected() -> None:
    """The device's own move (price, αR, its costs) lands on the budget that the platform expects of it."""
    quote = market_quote(12, RoundBudget(ESCROW, 1))
    assert quote.status == "ok"
    for offer in quote.offers:
        costs = budget_choice.PrivateCosts(1.0, 0.04)
        own = budget_choice.best_budget(offer.price_microcredits / MICRO, offer.external_risk, costs, 1.0)
        assert own == pytest.approx(offer.expected, abs=1e-5)


def test_later_rounds_pay_less() -> None:
    """r*(t) falls with t: accuracy gains shrink."""
    prices = [market_quote(8, RoundBudget(ESCROW, 1), number=t).offers[0].price_microcredits for t in (1, 2, 10, 30)]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > prices[-1]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 5), st.integers(0, 30_000_000), st.integers(1, 5))
def test_what_is_promised_fits_the_escrow(n: int, seed: int, escrow: int, rounds: int) -> None:
    """Σ most ≤ escrow, and what is expected fits the round's share."""
    quote = market_quote(n, RoundBudget(escrow, rounds), seed)
    assert sum(offer.most_microcredits for offer in quote.offers) <= escrow
    expected = sum(offer.price_microcredits * offer.expected for offer in quote.offers)
    assert expected <= escrow // rounds + 1
    claimed = [Work(offer.device_id, "own_1", ParticipationState.DELIVERED, budget=1e9) for offer in quote.offers]
    assert sum(due.amount_microcredits for due in compute_dues(quote, claimed)) <= escrow


def test_small_budget_limits_price_and_empty_one_names_the_least() -> None:
    free = market_quote(10, RoundBudget(ESCROW, 1))
    limited = market_quote(10, RoundBudget(free.details["expected_microcredits"] // 4, 1))
    assert limited.status == "limited"
    assert 0 < limited.offers[0].price_microcredits < free.offers[0].price_microcredits
    assert limited.details["leader_price"] == free.details["leader_price"]
    assert limited.details["expected_microcredits"] == pytest.approx(free.details["expected_microcredits"] / 4, abs=2)
    empty = market_quote(10, RoundBudget(0, 1))
    assert (empty.status, empty.offers[0].price_microcredits) == ("infeasible", 0)
    assert empty.details["least_microcredits"] >= 0


def test_the_pot_is_kept_out_of_the_price() -> None:
    quote = market_quote(6, RoundBudget(3_000_000, 1), round_microcredits=2_000_000)
    assert quote.pot_microcredits == 2_000_000
    assert sum(offer.most_microcredits for offer in quote.offers) <= 1_000_000


@pytest.mark.parametrize("solver", ["exact", "mean-field", "iterate", "agnostic"])
def test_every_leader_quotes(solver: str) -> None:
    quote = market_quote(8, RoundBudget(ESCROW, 1), solver=solver)
    assert quote.status == "ok"
    assert 500_000 < quote.offers[0].price_microcredits < 3_000_000


def test_agnostic_devices_see_no_risk_and_sell_as_the_uninformed_would() -> None:
    quote = market_quote(8, RoundBudget(ESCROW, 1), solver="agnostic", risk_weight=0.2)
    for offer in quote.offers:
        assert offer.external_risk == 0.0
        own = budget_choice.best_budget(
            offer.price_microcredits / MICRO, 0.0, budget_choice.PrivateCosts(1.0, 0.04), 1.0
        )
        assert own == pytest.approx(offer.expected, abs=1e-5)


def test_the_price_covers_what_computing_is_expected_to_cost() -> None:
    """A device alone, a = 1, b = 0.04: (r − b)²/(4a) ≥ C asks for r = b + 2√(aC), 2.04 credits for C = 1."""
    alone, parameters = sparse.csr_array((1, 1)), StackelbergParameters(cost_fixed=1.0)
    (offer,) = quote_stackelberg("t", 1, ["a"], alone, parameters, RoundBudget(ESCROW, 1)).offers
    assert offer.price_microcredits == pytest.approx(2_040_000, abs=2)
    (free,) = quote_stackelberg("t", 1, ["a"], alone, StackelbergParameters(), RoundBudget(ESCROW, 1)).offers
    cheap = StackelbergParameters(cost_fixed=0.001)
    assert quote_stackelberg("t", 1, ["a"], alone, cheap, RoundBudget(ESCROW, 1)).offers == (free,), (
        "the price covers it"
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 10), st.integers(0, 20), st.floats(0, 2))
def test_no_device_with_the_expected_costs_loses_by_taking_part(n: int, seed: int, fixed: float) -> None:
    quote = market_quote(n, RoundBudget(ESCROW, 1), seed, cost_fixed=fixed)
    for offer in quote.offers:
        costs = budget_choice.PrivateCosts(1.0, 0.04, fixed)
        price = offer.price_microcredits / MICRO
        worth = budget_choice.utility(price, offer.expected, offer.external_risk, costs, 1.0)
        assert worth >= -1e-5 * max(1.0, price)


def declared_quote(ties: np.ndarray[tuple[int, int], np.dtype[np.float64]], **keys: object) -> Quote:
    parameters = StackelbergParameters.read({"influence": "declared", "risk_weight": 0.2} | keys)
    return quote_stackelberg("t", 1, names(len(ties)), sparse.csr_array(ties), parameters, RoundBudget(30_000_000, 4))


@pytest.mark.parametrize("solver", ["exact", "mean-field", "iterate", "agnostic"])
@settings(max_examples=15, deadline=None)
@given(st.integers(2, 7), st.integers(0, 100), st.data())
def test_no_declaration_changes_a_price_or_a_cap(solver: str, n: int, seed: int, data: st.DataObject) -> None:
    """Whatever row a liar declares: the same price and the same maximum for all devices, itself included."""
    honest = some_ties(n, seed).toarray()
    lie = honest.copy()
    lie[0] = data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    lie[0, 0] = 0.0
    truthful, lied = declared_quote(honest, solver=solver), declared_quote(lie, solver=solver)
    for before, after in zip(truthful.offers, lied.offers, strict=True):
        assert (before.price_microcredits, before.most_microcredits) == (
            after.price_microcredits,
            after.most_microcredits,
        )
    assert sum(offer.most_microcredits for offer in lied.offers) <= 30_000_000
    assert sum(offer.price_microcredits * offer.expected for offer in lied.offers) <= 30_000_000 / 4 + n


def test_declarations_set_the_offered_risk_and_the_quote_explains_it() -> None:
    """Only device 1 is named by 0, none names 0: it bears 1 + λ(…) of what others sell; devices without ties bear 0."""
    ties = np.zeros((3, 3))
    ties[0, 1] = 1.0
    quote = declared_quote(ties, hops=1)
    assert [offer.external_risk > 0 for offer in quote.offers] == [True, False, False]
    assert quote.details["ties"] == [1, 0, 0]
    assert quote.details["leaked"] == [1.0, 0.0, 0.0]
    assert quote.details["influence"] == "declared"


def data(*samples: int, counted: tuple[float, ...] = ()) -> Data:
    return Data(samples, counted or tuple(map(float, samples)), elements=650.0, clip_norm=2.0)


def test_accuracy_weight_follows_from_samples_and_model_size() -> None:
    """ε_i = 650 · 3 · 4 · θ_i²/D_i² = 7800/ΣD² when weights are samples: 7800/200² = 0.195 for all ([MPPFL] 2.4).

    Where only 50 of 150 samples count, θ = 1/2 but noise falls with all 150: 7800 · (0.5/150)² = 0.0866…
    """
    assert accuracy_weights(data(50, 150), 3.0).tolist() == pytest.approx([0.195, 0.195])
    assert accuracy_weights(data(50, 150, counted=(50.0, 50.0)), 3.0).tolist() == pytest.approx([0.78, 13 / 150])
    parameters = StackelbergParameters(curvature=3.0)
    quote = quote_stackelberg("t", 1, names(2), some_ties(2), parameters, RoundBudget(ESCROW, 1), data(50, 150))
    assert quote.details["accuracy_weights"] == pytest.approx([0.195, 0.195])
    same = quote_stackelberg(
        "t", 1, names(2), some_ties(2), StackelbergParameters(accuracy_weight=0.195), RoundBudget(ESCROW, 1)
    )
    assert quote.offers == same.offers


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=8), st.integers(1, 10_000))
def test_lying_about_samples_scales_all_weights_by_the_liars_share(samples: list[int], claim: int) -> None:
    """By (ΣD/ΣD′)²: a larger claim lowers every ε, and so the price; a smaller one raises it for all devices."""
    honest, claimed = accuracy_weights(data(*samples), 1.0), accuracy_weights(data(claim, *samples[1:]), 1.0)
    moved = (sum(samples) / (claim + sum(samples[1:]))) ** 2
    assert claimed.tolist() == pytest.approx((moved * honest).tolist())
    assert claim < samples[0] or (claimed <= honest * (1 + 1e-12)).all()


def test_a_floor_too_high_for_a_hub_is_lowered() -> None:
    """A floor of 0.4 cannot hold on the four ties of a hub; 1/4 can."""
    star = np.zeros((5, 5))
    star[0, 1:] = star[1:, 0] = 1.0
    quote = quote_stackelberg(
        "t", 1, names(5), sparse.csr_array(star), StackelbergParameters(floor=0.4), RoundBudget(ESCROW, 1)
    )
    assert quote.status == "ok"


def survey_of(n: int, parameters: CorrelatedParameters) -> Survey:
    correlation = some_ties(n).toarray()
    care = parameters.social_care * correlation
    np.fill_diagonal(care, parameters.own_care)
    hidden = hidden_variances(correlation, parameters.variance_model)
    return Survey(hidden, care, parameters.constant, parameters.variance_low, math.exp(parameters.constant))


@pytest.mark.parametrize("prices", ["pivot", "even", "personal"])
@pytest.mark.parametrize("credits", [2, 20, 60, 400])
def test_expected_answers_fit_the_budget_and_are_the_most_valuable(prices: str, credits: int) -> None:
    """At whole micro-credits: Σ paid ≤ budget, every U_i ≈ 0, and on a grid no variance still paid for gains."""
    n, parameters = 9, CorrelatedParameters.read({"prices": prices})
    quote = quote_correlated("tsk_1", 1, names(n), some_ties(n), parameters, RoundBudget(credits * MICRO, 1))
    assert quote.status == "ok"
    assert sum(offer.most_microcredits for offer in quote.offers) <= credits * MICRO
    survey, expected = survey_of(n, parameters), np.array([offer.expected for offer in quote.offers])

    def worth(user: int, variance: float) -> float:
        work = Work(quote.offers[user].device_id, "own_1", ParticipationState.DELIVERED, budget=variance)
        paid = sum(due.amount_microcredits for due in compute_dues(quote, [work]))
        chosen = np.where(np.arange(n) == user, variance, expected)
        cost = -float(survey_utilities(survey, 0.0, np.zeros(n), chosen)[user])
        return paid / MICRO - cost if paid else -math.inf

    low, high = parameters.variance_low, math.exp(parameters.constant)
    for user in range(n):
        own = worth(user, float(expected[user]))
        assert own == pytest.approx(0.0, abs=2e-6)
        grid = [low, *np.geomspace(low, high, 60), expected[user] * 0.9, expected[user] * 1.1]
        best = max(worth(user, min(max(float(q), low), high)) for q in grid)
        assert best <= own + 2e-3  # whole micro-credits of slope move the optimum by less than this


def test_too_small_a_budget_names_the_least_one() -> None:
    """With little noise allowed the least budget is positive; one micro-credit more than it is enough."""
    parameters = CorrelatedParameters(variance_high=1.0)
    short = quote_correlated("tsk_1", 1, names(6), some_ties(6), parameters, RoundBudget(1, 1))
    assert short.status == "infeasible"
    assert all(offer.most_microcredits == 0 for offer in short.offers)
    least = short.details["least_microcredits"]
    enough = quote_correlated("tsk_1", 1, names(6), some_ties(6), parameters, RoundBudget(least + 1, 1))
    assert enough.status in ("ok", "no positive prices")
    if enough.status == "no positive prices":
        more = quote_correlated(
            "t", 1, names(6), some_ties(6), parameters, RoundBudget(enough.details["least_microcredits"] + 1, 1)
        )
        assert more.status == "ok"


def test_isolated_users_have_nothing_to_sell_and_one_user_is_a_survey() -> None:
    alone = quote_correlated(
        "t", 1, ["a", "b"], sparse.csr_array((2, 2)), CorrelatedParameters(), RoundBudget(MICRO, 1)
    )
    assert [offer.most_microcredits for offer in alone.offers] == [0, 0]
    single = quote_correlated(
        "t", 1, ["a"], sparse.csr_array((1, 1)), CorrelatedParameters(), RoundBudget(50 * MICRO, 1)
    )
    assert single.status == "ok"


def test_correlation_and_care_are_separate_inputs() -> None:
    """With one w for every two users v_i = (n − 1)²/((n − 1)w) = (n − 1)/w for all, whatever the trust."""
    parameters = CorrelatedParameters(correlation=2.0)
    quote = quote_correlated("t", 1, names(5), some_ties(5), parameters, RoundBudget(50 * MICRO, 1))
    assert quote.details["hidden_variances"] == pytest.approx([2.0] * 5)
    exact = CorrelatedParameters(correlation=2.0, variance_model="exact")
    again = quote_correlated("t", 1, names(5), some_ties(5), exact, RoundBudget(50 * MICRO, 1))
    assert again.details["hidden_variances"] == pytest.approx([2.0] * 5), "equal weights: the paper's formula is exact"
    strangers = quote_correlated("t", 1, names(3), sparse.csr_array((3, 3)), parameters, RoundBudget(50 * MICRO, 1))
    assert all(offer.most_microcredits > 0 for offer in strangers.offers), "strangers' data may be alike too"
    assert [offer.terms.trust for offer in strangers.offers if offer.terms] == [(1.0,)] * 3, "they care for themselves"


def test_a_group_with_similar_data_has_its_own_correlation() -> None:
    """v_i = (n − 1)²/w_i by hand: 0 and 1 have 5 in common, 0 and 2 at least 2 of two groups, the rest 1; n = 5."""
    groups = [
        {"devices": ["dev_000", "dev_001"], "correlation": 5.0},
        {"devices": ["dev_000", "dev_002", "dev_gone"], "correlation": 2.0},
        {"devices": ["dev_002", "dev_000"], "correlation": 0.5},
    ]
    parameters = CorrelatedParameters.read({"correlation": 1.0, "alike": groups})
    quote = quote_correlated("t", 1, names(5), some_ties(5), parameters, RoundBudget(50 * MICRO, 1))
    expected = [16 / weight for weight in (5 + 2 + 1 + 1, 5 + 3, 2 + 3, 4, 4)]
    assert quote.details["hidden_variances"] == pytest.approx(expected)
    friends = CorrelatedParameters.read({"alike": groups[:1]})
    own = quote_correlated("t", 1, names(5), some_ties(5), friends, RoundBudget(50 * MICRO, 1))
    trust = some_ties(5).toarray()
    trust[0, 1] = trust[1, 0] = 5.0
    assert own.details["hidden_variances"] == pytest.approx(hidden_variances(trust).tolist()), "others: as trust has it"
    for wrong in ([{"devices": ["dev_000"], "correlation": 1.0}], [{"devices": ["a", "b"], "correlation": 0.0}]):
        with pytest.raises(ValueError, match="alike"):
            CorrelatedParameters.read({"alike": wrong})


def test_data_the_adversary_knows_hides_no_user() -> None:
    """Complete graph of six, w = 1, two known: the exact v of the others is 3ᵀ(L_MM)⁻¹… = 1.0 (spec 2.1), not 5."""
    parameters = CorrelatedParameters(correlation=1.0, variance_model="exact", known=("dev_000", "dev_001", "dev_gone"))
    quote = quote_correlated("t", 1, names(6), some_ties(6), parameters, RoundBudget(50 * MICRO, 1))
    assert quote.details["hidden_variances"][2:] == pytest.approx([1.0] * 4)
    assert quote.details["known"] == ["dev_000", "dev_001"]
    with pytest.raises(ValueError, match='give variance_model "exact"'):
        CorrelatedParameters.read({"known": ["dev_000"]})


def test_a_survey_of_too_many_users_is_refused_early() -> None:
    n = MOST_USERS + 1
    with pytest.raises(SurveyTooLarge, match="lower max_devices"):
        quote_correlated("t", 1, names(n), sparse.csr_array((n, n)), CorrelatedParameters(), RoundBudget(MICRO, 1))
