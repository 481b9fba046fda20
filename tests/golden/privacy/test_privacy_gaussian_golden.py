"""Numbers of the trust specification, remark A21, and textbook values of the analytic Gaussian mechanism."""

import pytest

from coterie.privacy.gaussian import exact_delta, exact_epsilon, exact_multiplier, paper_multiplier

DELTA = 1e-6


def epsilon_of_trust(trust: float) -> float:
    """[SCFL] eq (11) with θ1 = 100, θ2 = 1."""
    return 100.0 * trust / (trust + 1.0)


@pytest.mark.parametrize(("trust", "true_delta"), [(0.097, 1.0e-6), (0.3, 5.0e-4), (0.5, 1.1e-2), (0.6999, 6.3e-2)])
def test_papers_formula_promises_millionth_but_gives_listed_delta(trust: float, true_delta: float) -> None:
    epsilon = epsilon_of_trust(trust)
    given = exact_delta(paper_multiplier(epsilon, DELTA), epsilon)
    assert float(f"{given:.1e}") == true_delta


def test_exact_multiplier_at_trust_threshold_is_0_1798_not_0_1287() -> None:
    epsilon = epsilon_of_trust(0.6999)
    assert round(paper_multiplier(epsilon, DELTA), 4) == 0.1287
    assert round(exact_multiplier(epsilon, DELTA), 4) == 0.1798


def test_the_papers_multiplier_reaches_the_largest_noise_at_trust_0_09687() -> None:
    """σ = √(2 ln(1.25e6))/ε = 5.29864/ε; ε(0.09687) = 8.8315, so σ = 0.6."""
    assert paper_multiplier(epsilon_of_trust(0.09687), DELTA) == pytest.approx(0.6, abs=5e-5)


def test_epsilon_one_delta_one_hundred_thousandth_needs_3_7306() -> None:
    """Against 4.8448 by eq (9): √(2 ln 125000) = 4.84481."""
    assert exact_multiplier(1.0, 1e-5) == pytest.approx(3.730632, abs=1e-6)
    assert paper_multiplier(1.0, 1e-5) == pytest.approx(4.844805, abs=1e-6)


def test_total_variation_at_epsilon_zero() -> None:
    """δ(σ, 0) = 2Φ(1/(2σ)) − 1: for σ = 1/2, 2Φ(1) − 1 = 0.6826894921."""
    assert exact_delta(0.5, 0.0) == pytest.approx(0.6826894921370859, rel=1e-14)
    assert exact_epsilon(0.5, 0.69) == 0.0
