"""`what-if scores`: the contract's keys, defaults, degenerate sizes and refusals."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from typing import Any

import pytest

from services.kit.runtime import whatif


def ask(document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    status = whatif.run({"scores": "services.trust.whatif.scores"}, ["scores"], io.StringIO(json.dumps(document)), out)
    return status, json.loads(out.getvalue())


def met(a: int, b: int, *, positive: bool = True, duration: float = 1.0, at: float = 0.0) -> dict[str, Any]:
    return {"a": a, "b": b, "positive": positive, "duration": duration, "at": at}


def test_interactions_give_all_three_matrices() -> None:
    status, answer = ask(
        {
            "now": 10,
            "decay_rate": math.log(2) / 10,
            "penalty": 0.5,
            "full_duration": 4,
            "direct_weight": 0.6,
            "devices": 3,
            "interactions": [met(0, 1, duration=8), met(1, 0, duration=2, at=10), met(2, 1, duration=4, at=10)],
        }
    )
    assert status == 0
    assert list(answer) == ["direct", "indirect", "trust"]
    assert answer["direct"][0] == pytest.approx([0, 0.5, 0])  # (1·½ + ½·1)/2
    assert answer["direct"][1] == pytest.approx([0.5, 0, 1])
    assert answer["indirect"][0] == pytest.approx([0, 0.5, 0.5])
    assert answer["trust"][0] == pytest.approx([1, 0.5, 0.2])


def test_direct_gives_all_three_matrices_and_its_diagonal_is_ignored() -> None:
    status, answer = ask({"direct": [[1, 0.9, 0], [0.9, 1, 0.5], [0, 0.5, 1]]})
    assert status == 0
    assert answer["direct"] == [[0, 0.9, 0], [0.9, 0, 0.5], [0, 0.5, 0]]
    assert answer["indirect"][0] == pytest.approx([0, 0.9, 0.45])
    assert answer["trust"][0] == pytest.approx([1, 0.9, 0.09])


def test_keys_not_given_leave_their_terms_out() -> None:
    """ξ = 0, ν = 1, D = 1, ω = 0.8, now = the latest interaction."""
    status, answer = ask(
        {
            "devices": 4,
            "interactions": [
                met(0, 1, duration=5, at=-100),
                met(0, 1, at=7),
                met(0, 1, positive=False, duration=0.5),
                met(1, 2),
            ],
        }
    )
    assert status == 0
    assert answer["direct"][0] == pytest.approx([0, 0.5, 0, 0])  # (1 + 1 − 0.5)/3
    assert answer["trust"][0] == pytest.approx([1, 0.5, 0.1, 0])


@pytest.mark.parametrize(
    ("document", "size"),
    [
        ({}, 0),
        ({"devices": 0}, 0),
        ({"devices": 1}, 1),
        ({"devices": 3}, 3),
        ({"direct": []}, 0),
        ({"direct": [[0.4]]}, 1),
        ({"devices": 2, "interactions": []}, 2),
        ({"interactions": [met(0, 2, positive=False)]}, 3),
    ],
)
def test_strangers_have_no_trust_but_in_themselves(document: dict[str, Any], size: int) -> None:
    status, answer = ask(document)
    zeros = [[0.0] * size for _ in range(size)]
    assert status == 0
    assert answer["direct"] == answer["indirect"] == zeros
    assert answer["trust"] == [[float(i == j) for j in range(size)] for i in range(size)]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"direct": [[0]], "interactions": []}, "not both"),
        ({"direct": [[0, 1]]}, "square"),
        ({"direct": [[0, 1], [1]]}, "square"),
        ({"direct": [[0, 1], [0.5, 0]]}, "symmetric"),
        ({"direct": [[0, 1.5], [1.5, 0]]}, "direct.0.1"),
        ({"direct": [[0, -0.1], [-0.1, 0]]}, "direct.0.1"),
        ({"direct": [[0, "inf"], ["inf", 0]]}, "direct.0.1"),
        ({"direct": [[0]], "devices": 2}, "agree"),
        ({"devices": -1}, "devices"),
        ({"devices": 1.5}, "devices"),
        ({"devices": 50_000}, "at most"),
        ({"decay_rate": -1}, "decay_rate"),
        ({"penalty": 0}, "penalty"),
        ({"full_duration": 0}, "full_duration"),
        ({"direct_weight": 1.01}, "direct_weight"),
        ({"omega": 0.8}, "omega"),
        ({"devices": 2, "interactions": [met(0, 2)]}, r"interactions\[0\]"),
        ({"devices": 2, "interactions": [met(0, 1), met(1, 1)]}, r"interactions\[1\]"),
        ({"devices": 2, "interactions": [met(0, -1)]}, "interactions.0.b"),
        ({"devices": 2, "interactions": [met(0, 1, duration=-1)]}, "interactions.0.duration"),
        ({"devices": 2, "now": 3, "interactions": [met(0, 1, at=4)]}, "later than now"),
        ({"devices": 2, "interactions": [{"a": 0, "b": 1}]}, "interactions.0.positive"),
    ],
)
def test_bad_input_is_an_answer_with_status_two(document: dict[str, Any], says: str) -> None:
    status, answer = ask(document)
    assert status == 2
    assert list(answer) == ["error"]
    assert re.search(says, answer["error"]["message"])


def test_the_command_answers_on_standard_output() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "services.trust", "what-if", "scores"],
        input='{"devices": 2, "interactions": [{"a": 0, "b": 1, "positive": true, "duration": 1, "at": 0}]}',
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["trust"] == [[1.0, 1.0], [1.0, 1.0]]
