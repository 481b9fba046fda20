"""Hand-worked answers of `what-if noise`, `blocks` and `identity`, through the same door the command line uses."""

import io
import json
import math
from typing import Any

import pytest

from services.kit.runtime import whatif

SOLVERS = {name: f"services.topology.whatif.{name}" for name in ("noise", "blocks", "identity")}


def ask(solver: str, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    status = whatif.run(SOLVERS, [solver], io.StringIO(json.dumps(document)), out)
    return status, json.loads(out.getvalue())


def test_noise_closed_form_by_hand() -> None:
    # Σ 1/X² = 1/9 + 1/16 = 25/144, √ = 5/12. γ L = .01·10 → √.1. σ² = 2·√.1·5/12; value = 2·√(.001)·5/12.
    status, answer = ask("noise", {"samples": [3, 4]})
    variance = 2 * math.sqrt(0.1) * 5 / 12
    assert status == 0
    assert set(answer) == {"noise", "budget", "value"}
    assert answer["noise"] == pytest.approx([math.sqrt(variance)] * 2)
    assert answer["budget"] == pytest.approx([2 / (9 * variance), 2 / (16 * variance)])
    assert answer["value"] == pytest.approx(2 * math.sqrt(0.001) * 5 / 12)


def test_noise_with_bounds_by_hand() -> None:
    # M=1, d=2, L=2, γ=1: A = d²/2L = 1, B = 2/X² = 2, 2. Device 0 capped at σ=1 costs 2. Above y=1 the other is
    # free: y² = √2, value √2 + 2/√2 + 2 = 2√2 + 2 = 4.828; below y=1, both free: y²=2 clamped to 1: 1+4 = 5.
    document = {"samples": [1, 1], "clip": 1, "dimension": 2, "smoothness": 2, "privacy_weight": 1}
    status, answer = ask("noise", document | {"high": [1, "inf"]})
    assert status == 0
    assert answer["noise"] == pytest.approx([1.0, 2**0.25])
    assert answer["budget"] == pytest.approx([2.0, math.sqrt(2)])
    assert answer["value"] == pytest.approx(2 * math.sqrt(2) + 2)
    # A floor of 3 for device 0 lifts both: the second follows for free.
    status, answer = ask("noise", document | {"low": [3, 0]})
    assert answer["noise"] == pytest.approx([3.0, 3.0])
    assert answer["value"] == pytest.approx(9 + 4 / 9)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"samples": []}, {"noise": [], "budget": [], "value": 0.0}),
        ({"samples": [], "low": [], "high": []}, {"noise": [], "budget": [], "value": 0.0}),
        ({"samples": [2], "privacy_weight": 0}, {"noise": [0.0], "budget": ["inf"], "value": 0.0}),
    ],
)
def test_noise_degenerate(document: dict[str, Any], expected: dict[str, Any]) -> None:
    assert ask("noise", document) == (0, expected)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"delay": [[0.1, 0.4], [0.3, 9.0]]}, {"assignment": [1, 0], "served": 2, "total_delay": 0.7}),
        ({"delay": [[0.1], [0.2]], "limit": 0.15}, {"assignment": [0, None], "served": 1, "total_delay": 0.1}),
        ({"delay": [], "limit": 1}, {"assignment": [], "served": 0, "total_delay": 0.0}),
        ({"delay": [[], []], "limit": 1}, {"assignment": [None, None], "served": 0, "total_delay": 0.0}),
        ({"delay": [[2, "inf"]], "limit": 1}, {"assignment": [None], "served": 0, "total_delay": 0.0}),
    ],
)
def test_blocks_by_hand(document: dict[str, Any], expected: dict[str, Any]) -> None:
    status, answer = ask("blocks", document)
    assert status == 0
    assert set(answer) == {"assignment", "served", "total_delay"}
    assert answer["assignment"] == expected["assignment"]
    assert answer["served"] == expected["served"]
    assert answer["total_delay"] == pytest.approx(expected["total_delay"])


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"loss": [[1, 2], [2, 1]], "similarity": [[0, 0], [0, 0]], "weight": 0.2}, [0, 1]),
        # .2·1 − .8·1.1 = −.68 beats .2·(−.5) − .8·1 = −.9.
        ({"loss": [[1, 1.1]], "similarity": [[-0.5, 1]], "weight": 0.2}, [1]),
        ({"loss": [[1, 5]], "similarity": [[0.1, 0.2]], "weight": 1}, [1]),
        ({"loss": [[1, 5]], "similarity": [[0.1, 1.0]], "weight": 0}, [0]),
        ({"loss": [[1, 1, 1]], "similarity": [[0, 0, 0]], "weight": 0.5}, [0]),
        ({"loss": [[4]], "similarity": [[0]], "weight": 0.5}, [0]),
        ({"loss": [], "similarity": [], "weight": 0.5}, []),
        ({"loss": [[3, 1]]}, [1]),
    ],
)
def test_identity_by_hand(document: dict[str, Any], expected: list[int]) -> None:
    assert ask("identity", document) == (0, {"model": expected})


@pytest.mark.parametrize(
    ("solver", "document"),
    [
        ("noise", {}),
        ("noise", {"samples": [0]}),
        ("noise", {"samples": [5, -1]}),
        ("noise", {"samples": [5], "low": [2], "high": [1]}),
        ("noise", {"samples": [5], "low": [1, 2]}),
        ("noise", {"samples": [5], "clip": 0}),
        ("noise", {"samples": [5], "dimension": 0}),
        ("noise", {"samples": [5], "smoothness": -1}),
        ("noise", {"samples": [5], "privacy_weight": -1}),
        ("noise", {"samples": [5], "gamma": 1}),
        ("noise", {"samples": ["inf"]}),
        ("blocks", {"delay": [[1, 2], [1]], "limit": 1}),
        ("blocks", {"delay": [[-1]], "limit": 1}),
        ("blocks", {"delay": [["nan"]], "limit": 1}),
        ("blocks", {"delay": [[1]], "limit": -1}),
        ("blocks", {"limit": 1}),
        ("identity", {"loss": [[1, 2]], "similarity": [[0]], "weight": 0.5}),
        ("identity", {"loss": [[1, 2], [1]], "similarity": [[0, 0], [0]], "weight": 0.5}),
        ("identity", {"loss": [[1]], "similarity": [], "weight": 0.5}),
        ("identity", {"loss": [[1]], "similarity": [[0]], "weight": 1.1}),
        ("identity", {"loss": [[]], "similarity": [[]], "weight": 0.5}),
        ("identity", {"loss": [[1]], "similarity": [[1.5]], "weight": 0.5}),
    ],
)
def test_bad_input_exits_2_with_a_message(solver: str, document: dict[str, Any]) -> None:
    status, answer = ask(solver, document)
    assert status == 2
    assert set(answer["error"]) == {"reason", "message"}
    assert answer["error"]["message"]
