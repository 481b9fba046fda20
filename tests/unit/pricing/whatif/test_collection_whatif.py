"""`what-if survey`: the contract's keys, defaults and bad input."""

import io
import json
import math
from typing import Any

import numpy as np
import pytest

from services.kit.runtime import whatif
from services.pricing.whatif import SOLVERS

KEYS = {
    "status",
    "total_variance",
    "variances",
    "base",
    "slopes",
    "payments",
    "privacy_loss",
    "utilities",
    "accuracy",
}
TIES = [[0, 2, 1], [2, 0, 0.5], [1, 0.5, 0]]
CARE = [[1, 0.2, 0], [0.1, 0.8, 0.3], [0, 0, 0.5]]


def ask(**document: Any) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    status = whatif.run(SOLVERS, ["survey"], io.StringIO(json.dumps(document)), out)
    return status, json.loads(out.getvalue())


def answer(**document: Any) -> dict[str, Any]:
    status, result = ask(correlation=TIES, care=CARE, **document)
    assert status == 0, result
    assert set(result) == KEYS
    return result


@pytest.mark.parametrize("prices", ["pivot", "even", "personal"])
@pytest.mark.parametrize("model", ["paper", "exact"])
def test_every_number_follows_from_the_variances_and_prices(prices: str, model: str) -> None:
    result = answer(budget=7, constant=5, error=9, prices=prices, variance_model=model)
    assert result["status"] == "tight"
    q, theta = np.array(result["variances"]), np.array(result["slopes"])
    w = np.array(TIES, dtype=float)
    laplacian = np.diag(w.sum(axis=1)) - w
    v = 4 / w.sum(axis=1) if model == "paper" else 9 * np.diagonal(np.linalg.pinv(laplacian))
    total = q.sum()
    loss = 5 - np.log(total + v)
    assert result["total_variance"] == pytest.approx(total)
    assert result["privacy_loss"] == pytest.approx(loss)
    assert result["payments"] == pytest.approx(np.array(result["base"]) - theta * q)
    assert sum(result["payments"]) == pytest.approx(7)
    assert result["utilities"] == pytest.approx(np.zeros(3), abs=1e-9)
    assert result["payments"] == pytest.approx(np.array(CARE) @ loss)
    assert result["accuracy"] == pytest.approx(max(0, 1 - total / 81))
    assert isinstance(result["base"], list) == (prices == "personal")


def test_defaults_are_the_specs() -> None:
    """Spec 2.4: C 10, B 50, ε² 200, q_lo 0.01, q_hi e^C, the paper's variance, pivot prices."""
    spelled = answer(
        constant=10,
        budget=50,
        variance_low=0.01,
        variance_high=math.exp(10),
        error=math.sqrt(200),
        variance_model="paper",
        prices="pivot",
    )
    assert answer() == spelled
    assert spelled["status"] == "saturated"
    assert spelled["variances"] == [0.01] * 3
    lower = answer(constant=4, budget=5)
    assert lower == answer(constant=4, budget=5, variance_high=math.exp(4))


def test_too_small_a_budget_is_infeasible() -> None:
    result = answer(budget=1, variance_high=2)
    assert result["status"] == "infeasible"
    assert all(result[key] is None for key in KEYS - {"status"})


def test_narrow_bounds_may_leave_no_positive_prices() -> None:
    """Cheap and dear users must all be at q_hi, so some slope would have to be negative."""
    care = [[5, 0, 0], [0, 0.01, 0], [0, 0, 0.01]]
    status, result = ask(correlation=TIES, care=care, constant=3, budget=2, variance_high=8)
    assert status == 0
    assert result["status"] == "no positive prices"
    assert result["total_variance"] is not None
    assert result["base"] is None
    status, result = ask(correlation=TIES, care=care, constant=3, budget=2, variance_high=8, prices="personal")
    assert (status, result["status"]) == (0, "tight")


def test_the_upper_bound_may_be_infinite() -> None:
    assert answer(budget=-20, variance_high="inf")["status"] == "tight"


def test_a_single_user_is_a_survey_too() -> None:
    """C − ln Λ = B/s: with C = 10, s = 1, B = 2 the total is e⁸."""
    status, result = ask(correlation=[[0]], care=[[1]], budget=2)
    assert status == 0
    assert result["total_variance"] == pytest.approx(math.exp(8))
    assert result["payments"] == pytest.approx([2])


def test_users_without_correlation_have_infinite_variance() -> None:
    status, result = ask(correlation=[[0, 0], [0, 0]], care=[[1, 0], [0, 1]], budget=2)
    assert status == 0
    assert result["privacy_loss"] == ["-inf", "-inf"]
    assert result["utilities"] == ["inf", "inf"]
    assert result["payments"] == pytest.approx([0, 0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"correlation": None}, "correlation"),
        ({"correlation": []}, "no rows"),
        ({"correlation": [[0, 1], [1]]}, "row 1"),
        ({"correlation": [[0, 1], [2, 0]], "care": [[1, 0], [0, 1]]}, "symmetric"),
        ({"correlation": [[0, -1], [-1, 0]], "care": [[1, 0], [0, 1]]}, "negative"),
        ({"correlation": [[1, 1], [1, 1]], "care": [[1, 0], [0, 1]]}, "diagonal"),
        ({"correlation": [[0, "nan"], ["nan", 0]]}, "finite"),
        ({"care": [[1, 0], [0, 1]]}, "3×3"),
        ({"care": [[1, 0, 0], [0, -1, 0], [0, 0, 1]]}, "negative"),
        ({"care": [[1, 0, 0], [0, 1], [0, 0, 1]]}, "row 1"),
        ({"variance_low": 0}, "variance_low"),
        ({"variance_low": 2, "variance_high": 1}, "variance_high"),
        ({"error": 0}, "error"),
        ({"budget": "inf"}, "budget"),
        ({"constant": 1e6}, "constant"),
        ({"variance_model": "magic"}, "variance_model"),
        ({"prices": "magic"}, "prices"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_input_is_answered_with_two_and_a_reason(change: dict[str, Any], words: str) -> None:
    status, result = ask(**{"correlation": TIES, "care": CARE, **change})
    assert status == 2
    assert words in result["error"]["message"]


def test_care_is_required() -> None:
    status, result = ask(correlation=TIES)
    assert status == 2
    assert "care" in result["error"]["message"]
