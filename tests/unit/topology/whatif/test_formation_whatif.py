"""`what-if clusters` as the contract has it: keys, defaults, degenerate sizes and refusals."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from services.kit.runtime import whatif

MODULES = {"clusters": "services.topology.whatif.formation"}
UNSTABLE = {
    "direct": [[0, 0.67, 0.57], [0.67, 0, 0.39], [0.57, 0.39, 0]],
    "non_iid": [1.95, 9.98, 13.21],
    "head_reward": 2,
    "start": [[0, 2], [1]],
}


def ask(**question: Any) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    status = whatif.run(MODULES, ["clusters"], io.StringIO(json.dumps(question)), out)
    return status, json.loads(out.getvalue())


def test_a_pair_of_friends_forms_a_cluster_with_the_default_constants() -> None:
    status, answer = ask(direct=[[0, 0.9], [0.9, 0]])
    assert status == 0
    assert set(answer) == {
        "clusters", "noise", "quality", "payoff", "iterations", "converged", "stable", "blocking"
    }  # fmt: skip
    assert answer["clusters"] == [{"members": [0, 1], "head": 0}]
    assert answer["noise"] == [0, 0]
    assert answer["payoff"] == pytest.approx([49.1508550893] * 2)
    assert (answer["iterations"], answer["converged"], answer["stable"], answer["blocking"]) == (1, True, True, None)


@pytest.mark.parametrize("method", ["rounds", "sweep"])
def test_the_instance_on_which_the_papers_theorem_fails_ends_stable(method: str) -> None:
    status, answer = ask(**UNSTABLE, method=method)
    assert status == 0
    assert answer["stable"]
    assert answer["clusters"] == [{"members": [0, 1, 2], "head": 0}]


def test_every_parameter_reaches_the_game() -> None:
    base = {"direct": [[0, 0.5], [0.5, 0]]}
    plain = ask(**base)[1]
    assert ask(**base, calibration="exact")[1]["noise"][1] > plain["noise"][1]
    assert ask(**base, trust_threshold=0.5)[1]["noise"] == [0, 0]
    assert ask(**base, head_reward=3)[1]["payoff"][0] > plain["payoff"][0]
    assert ask(**base, noise_max=0.3)[1]["payoff"] != plain["payoff"]
    assert ask(**base, non_iid=[5, 20])[1]["quality"] != plain["quality"]
    chain = {"direct": [[0, 0.9, 0], [0.9, 0, 0.9], [0, 0.9, 0]], "start": [[0, 2], [1]], "method": "sweep"}
    assert ask(**chain, direct_weight=0.0)[0] == 0


def test_zero_and_one_device_are_answered() -> None:
    assert ask(direct=[])[1]["clusters"] == []
    status, answer = ask(direct=[[0]])
    assert (status, answer["clusters"], answer["noise"]) == (0, [{"members": [0], "head": 0}], [0.6])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"direct": [[0, 0.9], [0.9]]}, "square"),
        ({"direct": [[]]}, "square"),
        ({"direct": [[0, 0.9], [0.8, 0]]}, "symmetric"),
        ({"direct": [[0, 1.1], [1.1, 0]]}, "[0, 1]"),
        ({"non_iid": [1.0]}, "non_iid"),
        ({"non_iid": -1}, "non_iid"),
        ({"start": [[0], [0, 1]]}, "exactly once"),
        ({"start": [[0], [7]]}, "exactly once"),
        ({"start": [[0, 1], []]}, "without members"),
        ({"start": "pairs"}, "singletons"),
        ({"method": "batch"}, "rounds"),
        ({"noise_max": -0.1}, "noise_max"),
        ({"trust_threshold": 2}, "trust_threshold"),
        ({"direct_weight": -1}, "direct_weight"),
        ({"head_reward": "inf"}, "head_reward"),
        ({"calibration": "guess"}, "paper"),
        ({"colour": 1}, "colour"),
    ],
)
def test_bad_input_is_refused_in_words(change: dict[str, Any], word: str) -> None:
    status, answer = ask(**{"direct": [[0, 0.5], [0.5, 0]], **change})
    assert status == 2
    assert word in answer["error"]["message"]
