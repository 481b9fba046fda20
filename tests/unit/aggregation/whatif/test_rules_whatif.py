"""`what-if combine` and `what-if step`: the contract's keys, defaults and bad input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import pytest

from coterie.parameters import groups_read
from services.aggregation.domain.rules.axis import METHODS, OPTIMISERS
from services.aggregation.whatif import SOLVERS
from services.kit.runtime import whatif

THREE = [[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]]


def ask(solver: str, document: Any) -> tuple[int, dict[str, Any]]:
    out = io.StringIO()
    text = document if isinstance(document, str) else json.dumps(document)
    status = whatif.run(SOLVERS, [solver], io.StringIO(text), out)
    return status, json.loads(out.getvalue())


@pytest.mark.parametrize("rule", METHODS)
def test_an_answer_has_the_contracts_keys(rule: str) -> None:
    parameters = {name: 1 for kind in groups_read("rule", [rule]) for name in kind.parameters() if name != "share"}
    for pre, more in ((None, {}), ("nnm", {"f": 1}), ("bucketing", {"size": 1})):
        status, result = ask("combine", {"rule": rule, "updates": THREE, "parameters": parameters | more, "pre": pre})
        assert status == 0, result
        assert list(result) == ["result", "used", "set_aside"]
        assert len(result["result"]) == 2
        assert all(list(item) == ["device", "why"] for item in result["set_aside"])


@pytest.mark.parametrize("rule", OPTIMISERS)
def test_a_step_has_the_contracts_keys_and_goes_on_from_its_own_state(rule: str) -> None:
    document: dict[str, Any] = {"rule": rule, "model": [1.0, 2.0], "mean_change": [0.5, 0.0]}
    status, first = ask("step", document)
    assert status == 0, first
    assert list(first) == ["model", "state"]
    assert first["model"][0] > 1.0
    assert first["model"][1] == 2.0
    status, second = ask("step", document | {"state": first["state"], "model": first["model"], "mean_change": [0, 0]})
    assert status == 0, second
    assert second["model"][0] > first["model"][0]


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"rule": "trimed-mean"}, "unknown_rule", "rule: no rule 'trimed-mean', did you mean 'trimmed-mean'?"),
        ({"pre": "nmm"}, "unknown_rule", "pre: no pre 'nmm', did you mean 'nnm'?"),
        ({"parameters": {}}, "bad_rule", "parameters.f: is missing; give a whole number at least 0"),
        ({"parameters": {"f": 1, "g": 2}}, "bad_rule", "parameters.g: no such parameter; krum takes: f"),
        ({"parameters": {"f": -1}}, "bad_rule", "parameters.f: must be a whole number at least 0, not -1"),
        ({"parameters": {"f": 0.5}}, "bad_rule", "parameters.f: must be a whole number at least 0, not 0.5"),
        ({"parameters": {"f": True}}, "bad_rule", "parameters.f: must be a whole number at least 0, not True"),
        ({"parameters": {"f": "1"}}, "bad_rule", "parameters.f: must be a whole number at least 0, not '1'"),
        ({"parameters": {"f": 2}}, "bad_rule", "parameters.f: f = 2 needs more than 4 updates, not 3 devices"),
        ({"pre": "bucketing", "parameters": {"f": 1}}, "bad_rule", "parameters.size: is missing; give a whole number"),
        ({"pre": "bucketing", "parameters": {"f": 1, "size": 2}}, "bad_rule", "not 2 buckets of 3 devices"),
        ({"rule": "trimmed-mean", "parameters": {"f": 1, "share": 0.1}}, "bad_rule", "give share or f, not both"),
        ({"rule": "trimmed-mean", "parameters": {}}, "bad_rule", "parameters: f is missing; give f or share"),
        ({"rule": "trimmed-mean", "parameters": {"share": 0.5}}, "bad_rule", "parameters.share: must be a number"),
        ({"updates": []}, "bad_updates", "updates: there are none"),
        ({"updates": [[], [], []]}, "bad_updates", "updates.0: is empty"),
        ({"updates": [[1], [2, 3], [4]]}, "bad_updates", "updates.1: has 2 numbers, updates.0 has 1"),
        ({"updates": [[1], ["x"], [4]]}, "invalid_input", "updates.1.0:"),
        ({"updates": [[1], [None], [4]]}, "invalid_input", "updates.1.0:"),
        ({"updates": [[1], ["2"], [4]]}, "invalid_input", "updates.1.0: Input should be a valid number"),
        ({"updates": [[1], [2], [True]]}, "invalid_input", "updates.2.0: Input should be a valid number"),
        ({"weights": [1, 1, "1"]}, "invalid_input", "weights.2: Input should be a valid number"),
        ({"weights": [1, 1e200, 1]}, "bad_weights", "weights.1: must be from 0 to 1e+150, not 1e+200"),
        ({"pre": ""}, "unknown_rule", "pre: no pre ''; choose one of: nnm, bucketing"),
        ({"updates": [[1], [2], [1e200]]}, "bad_updates", "updates.2.0: 1e+200 is too large"),
        ({"weights": [1, 1]}, "bad_weights", "weights: 2 numbers for 3 updates"),
        ({"weights": [0, 0, 0]}, "bad_weights", "weights: no device has a weight above 0"),
        ({"trust": [1, 1, 2]}, "bad_weights", "trust.2: must be from 0 to 1, not 2"),
        ({"trust": [1, 1]}, "bad_weights", "trust: 2 numbers for 3 updates"),
        ({"trust": [1, -0.5, 1]}, "bad_weights", "trust.1: must be from 0 to 1, not -0.5"),
        ({"trust": [0, 0, 0]}, "bad_weights", "trust: no device has a weight above 0"),
        ({"trust": [1, True, 1]}, "invalid_input", "trust.1: Input should be a valid number"),
        ({"surprise": 1}, "invalid_input", "surprise: Extra inputs"),
    ],
)
def test_bad_input_is_refused_with_its_place(change: dict[str, Any], reason: str, words: str) -> None:
    status, result = ask("combine", {"rule": "krum", "updates": THREE, "parameters": {"f": 1}} | change)
    assert status == 2
    assert result["error"]["reason"] == reason
    assert words in result["error"]["message"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    ("document", "place"),
    [
        ('{"rule": "mean", "updates": [[1], [?]]}', "updates.1.0: "),
        ('{"rule": "mean", "updates": [[1], [2]], "weights": [?, 1]}', "weights.0: "),
        ('{"rule": "mean", "updates": [[1], [2]], "trust": [1, ?]}', "trust.1: "),
        ('{"rule": "centred-clipping", "updates": [[1], [2]], "parameters": {"radius": ?}}', "parameters.radius: "),
    ],
)
def test_what_is_no_finite_number_is_refused_with_its_place(number: str, document: str, place: str) -> None:
    status, result = ask("combine", document.replace("?", number))
    assert status == 2
    assert result["error"]["message"].startswith(place)


def test_input_nested_beyond_measure_is_refused_like_any_that_is_no_json() -> None:
    status, result = ask("combine", '{"rule": ' + "[" * 100_000)
    assert (status, result["error"]["reason"]) == (2, "not_json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rule": "fedadm"}, "rule: no rule 'fedadm', did you mean 'fedadam'?"),
        ({"rule": "mean"}, "choose one of: fedavgm, fedadam, fedyogi, fedadagrad"),
        ({"parameters": {"momentum": 0.9}}, "parameters.momentum: no such parameter; fedadam takes: learning_rate, "),
        ({"parameters": {"learn_rate": 0.9}}, "did you mean 'learning_rate'?"),
        ({"parameters": {"tau": 0}}, "parameters.tau: must be a number above 0 and at most 1e+150, not 0"),
        ({"parameters": {"tau": 1e200}}, "parameters.tau: must be a number above 0 and at most 1e+150, not 1e+200"),
        ({"parameters": {"beta1": 1.1}}, "parameters.beta1: must be a number at least 0 and at most 1, not 1.1"),
        ({"model": [1, "2"]}, "model.1: Input should be a valid number"),
        ({"mean_change": [True, 1]}, "mean_change.0: Input should be a valid number"),
        ({"mean_change": [1]}, "mean_change: has 1 numbers, model has 2"),
        ({"state": {"m": [0, 0]}}, "state.v: is missing; the state of fedadam holds m, v"),
        ({"state": {"m": [0, 0], "v": [1, 1], "w": [0, 0]}}, "state.w: is not part of it"),
        ({"state": {"m": [0], "v": [1, 1]}}, "state.m: has 1 numbers, model has 2"),
        ({"state": {"m": [0, 0], "v": [1, -1]}}, "state.v: squares are not negative"),
        ({"mean_change": [1e200, 0]}, "mean_change: the step leaves the range of numbers"),
    ],
)
def test_a_bad_step_is_refused_with_its_place(change: dict[str, Any], words: str) -> None:
    document = {"rule": "fedadam", "model": [1, 2], "mean_change": [0.5, 0.1]} | change
    status, result = ask("step", document)
    assert status == 2, result
    assert words in result["error"]["message"]


def test_the_module_answers_on_its_streams() -> None:
    command = [sys.executable, "-m", "services.aggregation", "what-if", "combine"]
    good = subprocess.run(command, input='{"rule": "mean", "updates": [[1], [2]]}', capture_output=True, text=True)
    assert (good.returncode, json.loads(good.stdout)["result"]) == (0, [1.5])
    bad = subprocess.run(command, input="{}", capture_output=True, text=True)
    assert bad.returncode == 2
    assert "rule: Field required" in json.loads(bad.stdout)["error"]["message"]
    assert bad.stderr == ""
