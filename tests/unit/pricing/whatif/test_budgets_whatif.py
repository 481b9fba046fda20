"""`what-if market`: the contract's keys, defaults and bad input."""

import io
import json
import math
from typing import Any

import numpy as np
import pytest

from services.kit.runtime import whatif
from services.pricing.domain.influence import leakage
from services.pricing.whatif import SOLVERS

KEYS = {
    "status",
    "price",
    "budgets",
    "external_risk",
    "utilities",
    "server_cost",
    "welfare",
    "welfare_optimum",
    "price_of_anarchy",
    "iterations",
    "residual",
}
TRIANGLE = [[0, 1, 3], [2, 0, 1], [1, 1, 0]]


def ask(**document: Any) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    status = whatif.run(SOLVERS, ["market"], io.StringIO(json.dumps(document)), out)
    return status, json.loads(out.getvalue())


def answer(**document: Any) -> dict[str, Any]:
    status, result = ask(**document)
    assert status == 0, result
    assert set(result) == KEYS
    return result


@pytest.mark.parametrize("solver", ["exact", "mean-field", "iterate", "agnostic"])
def test_every_number_follows_from_price_and_budgets(solver: str) -> None:
    a, b, c, eps = [0.9, 1.0, 1.1], [0.02, 0.03, 0.04], [0.1, 0.0, 0.2], [0.5, 1.0, 1.5]
    result = answer(
        influence=TRIANGLE,
        hops=3,
        discount=0.4,
        risk_weight=0.08,
        cost_quadratic=a,
        cost_linear=b,
        cost_fixed=c,
        accuracy_weight=eps,
        balance=0.3,
        round=4,
        solver=solver,
    )
    assert result["status"] == "ok"
    r, rho = result["price"], np.array(result["budgets"])
    risk = leakage(np.array(TRIANGLE, dtype=float), hops=3, discount=0.4).apply(rho)
    s = rho + 0.08 * risk
    worth = r * rho - np.array(a) * s**2 - np.array(b) * s
    assert result["external_risk"] == pytest.approx(risk)
    assert result["utilities"] == pytest.approx(worth - np.array(c))
    assert result["welfare"] == pytest.approx(worth.sum())
    assert result["server_cost"] == pytest.approx(0.3 / 4 * np.sum(np.array(eps) / rho) + 0.7 * r * rho.sum())
    assert result["price_of_anarchy"] == pytest.approx(result["welfare_optimum"] / result["welfare"])
    assert result["price_of_anarchy"] > 1
    if solver in ("exact", "mean-field"):
        assert result["residual"] < 1e-12
    if solver == "iterate":
        assert 0 < result["residual"] < 1e-3
        assert result["iterations"] in (1, 2, 3)
    if solver == "agnostic":
        assert rho == pytest.approx((r - np.array(b)) / (2 * np.array(a)))


def test_defaults_are_the_specs() -> None:
    """Spec 1.9: K 5, λ 0.5, α 0.05, τ 0.5, first round, floor 0; costs at the middle of the spec's ranges."""
    spelled = answer(
        influence=TRIANGLE,
        hops=5,
        discount=0.5,
        risk_weight=0.05,
        cost_quadratic=[1, 1, 1],
        cost_linear=[0.04] * 3,
        cost_fixed=0,
        accuracy_weight=[1, 1, 1],
        balance=0.5,
        round=1,
        floor=0,
        solver="exact",
    )
    assert answer(influence=TRIANGLE) == spelled


def test_edges_and_matrix_give_the_same_answer() -> None:
    edges = [[i, j, TRIANGLE[i][j]] for i in range(3) for j in range(3) if i != j]
    assert answer(edges=edges, devices=3) == answer(influence=TRIANGLE, devices=3)


def test_an_edge_is_the_influence_of_the_second_on_the_first() -> None:
    """Device 0 is influenced by 1 alone, 1 by 2, 2 by 0: with one hop the risk of i is the budget of its influencer."""
    result = answer(edges=[[0, 1, 1], [1, 2, 7], [2, 0, 3]], devices=3, hops=1, cost_quadratic=[0.8, 1, 1.2])
    rho = result["budgets"]
    assert result["external_risk"] == pytest.approx([rho[1], rho[2], rho[0]])


def test_a_given_price_leaves_only_the_followers_to_answer() -> None:
    result = answer(influence=TRIANGLE, price=0.8)
    assert result["price"] == 0.8
    assert result["residual"] < 1e-12
    assert result["budgets"] == answer(influence=TRIANGLE, price=0.8, solver="iterate")["budgets"]
    blind = answer(influence=TRIANGLE, price=0.8, solver="agnostic")
    assert blind["budgets"] == pytest.approx([0.38] * 3)


def test_at_too_low_a_price_all_devices_withdraw() -> None:
    result = answer(influence=TRIANGLE, price=0.01)
    assert result["budgets"] == [0, 0, 0]
    assert result["server_cost"] == "inf"
    assert result["price_of_anarchy"] == "nan"
    assert result["welfare"] == 0


def test_uneven_costs_make_the_market_infeasible_not_wrong() -> None:
    for solver in ("exact", "mean-field", "iterate"):
        result = answer(influence=TRIANGLE, cost_quadratic=[0.01, 50, 1], risk_weight=0.4, solver=solver)
        assert result["status"] == "infeasible"
        assert result["server_cost"] == "inf"
        assert result["price"] is None
        assert result["budgets"] is None


def test_many_devices_go_through_the_matrix_free_path() -> None:
    n = 2_500
    edges = [[i, (i + k) % n, 1 + (i * k) % 3] for i in range(n) for k in (1, 7, 31)]
    result = answer(edges=edges, devices=n, round=3)
    assert result["status"] == "ok"
    assert len(result["budgets"]) == n
    assert result["residual"] < 1e-12


def test_without_accuracy_weights_nothing_is_bought() -> None:
    result = answer(influence=TRIANGLE, accuracy_weight=0)
    assert (result["price"], result["budgets"], result["server_cost"]) == (0, [0, 0, 0], 0)


def test_one_device_whose_accuracy_does_not_count_may_set_the_edge() -> None:
    """Device 2 stays only at prices far above those of the others; the best price that keeps it in is that edge."""
    result = answer(influence=TRIANGLE, accuracy_weight=[1, 1, 0], cost_linear=[0.02, 0.02, 50], round=30)
    assert result["status"] == "boundary"
    assert result["budgets"][2] == pytest.approx(0, abs=1e-9)
    assert math.isfinite(result["server_cost"])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "influence"),
        ({"influence": TRIANGLE, "edges": []}, "not both"),
        ({"edges": [[0, 1, 1]]}, "devices"),
        ({"influence": []}, "no rows"),
        ({"influence": [[0, 1], [1]]}, "row 1"),
        ({"influence": [[0, 1], [1, 0], [1, 1]]}, "square"),
        ({"influence": TRIANGLE, "devices": 4}, "3 rows"),
        ({"influence": [[0, -1], [1, 0]]}, "negative"),
        ({"influence": [[0, "nan"], [1, 0]]}, "finite"),
        ({"influence": [[1, 1], [1, 0]]}, "itself"),
        ({"influence": [[0]]}, "no incoming influence"),
        ({"influence": [[0, 1], [0, 0]]}, "device 1 has no incoming influence"),
        ({"edges": [[0, 3, 1]], "devices": 3}, "ids run from 0 to 2"),
        ({"edges": [[-1, 0, 1]], "devices": 3}, "ids run"),
        ({"edges": [[0, 1]], "devices": 2}, "edges.0"),
        ({"edges": [[0, 1, 1], [0, 1, 2], [1, 0, 1]], "devices": 2}, "more than once"),
        ({"edges": [[0, 1, 1]], "devices": 0}, "devices"),
        ({"influence": TRIANGLE, "cost_quadratic": [1, 1]}, "cost_quadratic must hold 3"),
        ({"influence": TRIANGLE, "cost_quadratic": 0}, "positive"),
        ({"influence": TRIANGLE, "cost_linear": [0, -1, 0]}, "cost_linear[1]"),
        ({"influence": TRIANGLE, "cost_fixed": "inf"}, "finite"),
        ({"influence": TRIANGLE, "accuracy_weight": -1}, "accuracy_weight"),
        ({"influence": TRIANGLE, "risk_weight": 1}, "risk_weight"),
        ({"influence": TRIANGLE, "discount": 1}, "discount"),
        ({"influence": TRIANGLE, "balance": 0}, "balance"),
        ({"influence": TRIANGLE, "hops": 0}, "hops"),
        ({"influence": TRIANGLE, "hops": 1.5}, "hops"),
        ({"influence": TRIANGLE, "round": 0}, "round"),
        ({"influence": TRIANGLE, "floor": 0.6}, "floor"),
        ({"influence": TRIANGLE, "solver": "magic"}, "solver"),
        ({"influence": TRIANGLE, "price": -1}, "price"),
        ({"influence": TRIANGLE, "colour": "red"}, "colour"),
    ],
)
def test_bad_input_is_answered_with_two_and_a_reason(document: dict[str, Any], words: str) -> None:
    status, result = ask(**document)
    assert status == 2
    assert result["error"]["reason"]
    assert words in result["error"]["message"]
