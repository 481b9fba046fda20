"""Rules worked out by hand, as `what-if combine` and `what-if step` answer them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from services.aggregation.whatif import SOLVERS
from services.kit.runtime import whatif


def ask(solver: str, **document: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(whatif.answer(SOLVERS, solver, json.dumps(document)))
    return result


LINE = [[1.0, 10.0], [2.0, -40.0], [3.0, 20.0], [4.0, 30.0], [100.0, 25.0]]


@pytest.mark.parametrize(
    ("document", "result", "used"),
    [
        ({"rule": "mean"}, [22.0, 9.0], [0, 1, 2, 3, 4]),
        # (1·1 + 2·2 + 3·3) / 6 and (10 − 80 + 60) / 6; the others weigh nothing.
        ({"rule": "mean", "weights": [1, 2, 3, 0, 0]}, [14 / 6, -10 / 6], [0, 1, 2]),
        # Weights at most the trust: 1, 2, 3 become ½, 1, ½.
        ({"rule": "mean", "weights": [1, 2, 3, 9, 9], "trust": [0.5, 1, 0.5, 0, 0]}, [2.0, -12.5], [0, 1, 2]),
        # Middle of 1 2 3 4 100 and of −40 10 20 25 30: both of device 2.
        ({"rule": "median"}, [3.0, 20.0], [2]),
        # 2 3 4 and 10 20 25.
        ({"rule": "trimmed-mean", "parameters": {"f": 1}}, [3.0, 55 / 3], [0, 1, 2, 3, 4]),
        # Around 3 the four nearest are 1 2 3 4; around 20 they are 10 20 25 30.
        ({"rule": "mean-around-median", "parameters": {"f": 1}}, [2.5, 85 / 4], [0, 1, 2, 3, 4]),
    ],
)
def test_coordinates_by_hand(document: dict[str, Any], result: list[float], used: list[int]) -> None:
    match = ask("combine", updates=LINE, **document)
    assert match["result"] == pytest.approx(result, rel=1e-14)
    assert match["used"] == used
    assert [item["device"] for item in match["set_aside"]] == [i for i in range(5) if i not in used]


def test_krum_by_hand() -> None:
    """Squared distances on the line 0 1 3 7 20: with f = 1 each has 3 nearest others.

    0: 1 + 9 + 49 = 59; 1: 1 + 4 + 36 = 41; 3: 4 + 9 + 16 = 29; 7: 16 + 36 + 49 = 101; 20: 169 + 289 + 361 = 819.
    """
    updates = [[0], [1], [3], [7], [20]]
    result = ask("combine", rule="krum", updates=updates, parameters={"f": 1})
    assert result["result"] == [3.0]
    assert result["used"] == [2]
    assert result["set_aside"][3] == {
        "device": 4,
        "why": "its mean squared distance to the nearest others is 273, the lowest is 9.66667",
    }
    several = ask("combine", rule="multi-krum", updates=updates, parameters={"f": 1})
    assert several["result"] == [11 / 4]
    assert several["used"] == [0, 1, 2, 3]
    assert several["set_aside"] == [
        {"device": 4, "why": "its mean squared distance to the nearest others is 273, among the 1 highest"}
    ]


def test_of_equal_scores_the_first_device_is_taken() -> None:
    """With one nearest other the nearest two always tie."""
    assert ask("combine", rule="krum", updates=[[0], [1], [10]], parameters={"f": 1})["result"] == [0.0]
    assert ask("combine", rule="krum", updates=[[10], [1], [0]], parameters={"f": 1})["result"] == [1.0]


def test_of_two_values_equally_near_to_the_median_the_lower_counts() -> None:
    """Of 1 2 3 two are kept: 2, and of 1 and 3 the 1."""
    for updates in ([[1], [2], [3]], [[3], [2], [1]]):
        result = ask("combine", rule="mean-around-median", updates=updates, parameters={"f": 1})
        assert result["result"] == [1.5]
        assert result["used"] == [i for i, (value,) in enumerate(updates) if value < 3]


def test_geometric_medians_with_known_places() -> None:
    """A convex quadrilateral's is where its diagonals cross; a triangle's with an angle of 120° or more that corner;
    an equilateral triangle's its centre (Fermat's point)."""
    crossing = ask("combine", rule="geometric-median", updates=[[0, 0], [4, 4], [1, 3], [3, 0]])["result"]
    # x = y on one diagonal, y = 3 − 3/2·(x − 1) on the other.
    assert crossing == pytest.approx([1.8, 1.8], abs=1e-9)
    corner = ask("combine", rule="geometric-median", updates=[[-10, 1], [0, 0], [10, 1]])
    assert corner["result"] == [0.0, 0.0]
    assert corner["used"] == [0, 1, 2]
    height = math.sqrt(3) / 2
    centre = ask("combine", rule="geometric-median", updates=[[0, 0], [1, 0], [0.5, height]])["result"]
    assert centre == pytest.approx([0.5, height / 3], abs=1e-9)
    assert ask("combine", rule="geometric-median", updates=[[1], [2], [4], [9]])["result"] == [3.0]
    heavy = ask("combine", rule="geometric-median", updates=[[0, 0], [1, 0], [0.5, height]], weights=[2, 1, 1])
    assert heavy["result"] == [0.0, 0.0]


def test_centred_clipping_by_hand() -> None:
    """From 0 with radius 5: (3, 4) is 5 away and stays, (30, 40) becomes (3, 4), (0, 1) stays: their mean is (2, 3).
    From there (1, 1) and (−2, −2) stay and (28, 37) of length √2153 is cut to 5."""
    updates = [[3, 4], [30, 40], [0, 1]]
    one = ask("combine", rule="centred-clipping", updates=updates, parameters={"radius": 5})
    assert one["result"] == pytest.approx([2.0, 3.0])
    assert one["used"] == [0, 1, 2]
    two = ask("combine", rule="centred-clipping", updates=updates, parameters={"radius": 5, "iterations": 2})
    cut = 5 / math.sqrt(28**2 + 37**2)
    assert two["result"] == pytest.approx([2 + (1 - 2 + 28 * cut) / 3, 3 + (1 - 2 + 37 * cut) / 3])
    centred = ask("combine", rule="centred-clipping", updates=[[9], [11]], parameters={"radius": 5, "centre": [10]})
    assert centred["result"] == [10.0]


def test_mixing_by_hand() -> None:
    """Of 0 1 5 6 with f = 1 each becomes the mean of itself and its 2 nearest: 2, 2, 4, 4."""
    updates = [[0], [1], [5], [6]]
    mixed = ask("combine", rule="median", pre="nnm", updates=updates, parameters={"f": 1})
    assert mixed["result"] == [3.0]
    lone = ask("combine", rule="krum", pre="nnm", updates=[[0], [1], [2], [90]], parameters={"f": 1})
    assert lone["result"] == [1.0]
    assert lone["used"] == [0, 1, 2]
    assert lone["set_aside"] == [{"device": 3, "why": "among the nearest of no update that counts"}]


def test_momentum_by_hand() -> None:
    """β = ½, η = 2, Δ = 4 then −1: m = 4, x = 1 + 8 = 9; m = 2 − 1 = 1, x = 9 + 2 = 11."""
    parameters = {"learning_rate": 2, "momentum": 0.5}
    first = ask("step", rule="fedavgm", parameters=parameters, state=None, model=[1], mean_change=[4])
    assert first == {"model": [9.0], "state": {"m": [4.0]}}
    second = ask("step", rule="fedavgm", parameters=parameters, state=first["state"], model=[9], mean_change=[-1])
    assert second == {"model": [11.0], "state": {"m": [1.0]}}


@pytest.mark.parametrize(
    ("rule", "v"),
    [
        # τ = ½ gives v = ¼ at first; Δ = 2, Δ² = 4, then Δ = −1, Δ² = 1; β₁ = ½, β₂ = ¾.
        ("fedadam", (0.75 * 0.25 + 1.0, 0.75 * (0.75 * 0.25 + 1.0) + 0.25)),
        # v − Δ² < 0: v grows by ¼·4 to 1¼; then 1¼ > 1: v shrinks by ¼.
        ("fedyogi", (1.25, 1.0)),
        ("fedadagrad", (4.25, 5.25)),
    ],
)
def test_adaptive_steps_by_hand(rule: str, v: tuple[float, float]) -> None:
    """m = ½·2 = 1, then ½ − ½ = 0: the second step stands still. x = 10 + 3·1 / (√v + ½)."""
    parameters = {"learning_rate": 3, "beta1": 0.5, "beta2": 0.75, "tau": 0.5}
    first = ask("step", rule=rule, parameters=parameters, state=None, model=[10], mean_change=[2])
    assert first["state"] == {"m": [1.0], "v": [v[0]]}
    assert first["model"] == pytest.approx([10 + 3 / (math.sqrt(v[0]) + 0.5)], rel=1e-15)
    second = ask("step", rule=rule, parameters=parameters, model=first["model"], state=first["state"], mean_change=[-1])
    assert second["state"] == {"m": [0.0], "v": [v[1]]}
    assert second["model"] == first["model"]
