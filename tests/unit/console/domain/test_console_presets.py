"""The form of a new task: validation, the specification it sends, and the consequences it shows."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from coterie.privacy.accounting import gaussian_charge, total
from coterie.privacy.gaussian import exact_multiplier
from services.aggregation.domain.rules.choice import choose
from services.console.domain.consequences import consequences, plan_of, what_if_clusters
from services.console.domain.fields import STEPPING, Field
from services.console.domain.graph import Graph
from services.console.domain.presets import (
    AXES,
    BY_NAME,
    PRESETS,
    axes_of,
    fault_of,
    merged,
    shown,
    specification,
)
from services.console.domain.visibility import who_sees

CONTRACT = {"rounds": {"minimum": 1, "maximum": 100_000}, "escrow_microcredits": {"minimum": 0, "maximum": 2**63 - 1}}


def defaults(name: str) -> dict[str, Any]:
    return {field.key: field.default for field in BY_NAME[name].fields}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda item: item.name)
def test_the_defaults_of_a_preset_are_valid(preset: Any) -> None:
    values = defaults(preset.name) | {"rounds": 10, "min_devices": 3, "question": "How warm is it?"}
    for field in shown(preset, values):
        assert fault_of(field, values.get(field.key, field.default), CONTRACT) is None, field.key
    spec = specification(preset, "n", "", values, auto_start=True)
    assert spec["preset"] == preset.name
    assert [title for title, _ in consequences(spec)] == ["Privacy after all rounds", "Cost", "Time"]
    assert axes_of(spec)["topology"] == AXES[preset.name][0]


def test_bounds_of_the_rest_schema_hold_besides_those_of_the_form() -> None:
    rounds = Field("rounds", "Rounds", ("rounds",), "integer", 10, required=True)
    assert fault_of(rounds, 0, CONTRACT) == "At least 1."
    assert fault_of(rounds, 100_001, CONTRACT) == "At most 100000."
    assert fault_of(rounds, 2.5, CONTRACT) == "Enter a whole number."
    assert fault_of(rounds, math.inf, CONTRACT) == "Enter a whole number."
    assert fault_of(rounds, "many", CONTRACT) == "Enter a number."
    assert fault_of(rounds, None, CONTRACT) == "Required."
    assert fault_of(rounds, 7, CONTRACT) is None


def test_credits_are_entered_in_credits_and_sent_in_micro_credits() -> None:
    escrow = next(field for field in BY_NAME["clusters"].fields if field.kind == "credits")
    assert fault_of(escrow, -1, CONTRACT) == "At least 0."
    assert fault_of(escrow, 1e13, CONTRACT) is not None
    spec = specification(BY_NAME["clusters"], "n", "", {"escrow": 1.25}, auto_start=False)
    assert spec["escrow_microcredits"] == 1_250_000


def test_a_choice_brings_its_own_fields() -> None:
    preset = BY_NAME["fedavg"]
    without = {field.key for field in shown(preset, {"privacy": "none"})}
    assert "target_epsilon" not in without
    assert "target_epsilon" in {field.key for field in shown(preset, {"privacy": "uniform"})}
    spec = specification(preset, "n", "", defaults("fedavg") | {"privacy": "none"}, auto_start=False)
    assert "privacy" not in spec["parameters"]


def test_rule_mode_and_payment_of_a_star_are_sent_with_parameters() -> None:
    preset, values = BY_NAME["fedavg"], defaults("fedavg")
    plain = specification(preset, "n", "", values, auto_start=False)
    assert (plain["rule"], plain["mode"], plain["incentive"]) == ("mean", "synchronous", "none")
    assert plain["parameters"].keys() <= {"sums"}
    assert "escrow_microcredits" not in plain
    chosen = values | {"rule": "nnm+trimmed-mean", "mode": "asynchronous", "incentive": "contribution", "escrow": 5}
    spec = specification(preset, "n", "", chosen, auto_start=False)
    assert spec["parameters"]["rule"] == {"f": 1}
    assert spec["parameters"]["asynchronous"] == {"buffer": 3}
    assert spec["escrow_microcredits"] == 5_000_000
    assert axes_of(spec)["incentive"] == "contribution"


@pytest.mark.parametrize("rule", dict(STEPPING[0].options or {}))
def test_the_platform_accepts_every_rule_of_the_form(rule: str) -> None:
    spec = specification(BY_NAME["fedavg"], "n", "", defaults("fedavg") | {"rule": rule}, auto_start=False)
    result = choose(rule, json.dumps(spec["parameters"]))
    assert not result.rule.why_not(3)


def test_further_keys_override_choices_and_nothing_else() -> None:
    spec: dict[str, Any] = {
        "rounds": 3,
        "parameters": {"privacy": {"noise_max": 0.6}, "pricing": {"credits_per_point": 1}},
    }
    result = merged(spec, '{"max_attempts": 5, "parameters": {"privacy": {"delta": 1e-9}}}')
    assert result["max_attempts"] == 5
    assert result["parameters"] == {"privacy": {"noise_max": 0.6, "delta": 1e-9}, "pricing": {"credits_per_point": 1}}
    assert spec["parameters"]["privacy"] == {"noise_max": 0.6}
    assert merged(spec, "  ") == spec
    for wrong in ("{", "[1]", "3"):
        with pytest.raises(ValueError, match="JSON"):
            merged(spec, wrong)


def test_the_forms_epsilon_equals_the_ledgers_composition() -> None:
    """Compose four rounds of one Gaussian by the form and charge by charge."""
    spec = {
        "preset": "fedavg",
        "privacy": "uniform",
        "rounds": 4,
        "parameters": {"privacy": {"epsilon": 1.0, "delta": 1e-6}},
    }
    sigma = exact_multiplier(1.0, 1e-6)
    composed = total([gaussian_charge("t", n, "update", "device", sigma) for n in range(4)], 1e-6, "device")
    meanings = dict(consequences(spec))["Privacy after all rounds"]
    assert f"ε = {composed:.3g}" in meanings


def test_missing_noise_is_always_disclosed() -> None:
    assert "No noise" in dict(consequences({"preset": "fedavg", "rounds": 1}))["Privacy after all rounds"]
    for preset in ("clusters", "mesh"):
        assert "no ε describes" in dict(consequences({"preset": preset, "rounds": 5}))["Privacy after all rounds"]


def test_the_cost_is_the_escrow() -> None:
    meanings = dict(consequences({"preset": "clusters", "rounds": 4, "escrow_microcredits": 10_000_000}))
    assert meanings["Cost"].startswith("10 credits at most, 2.5 per round")
    assert dict(consequences({"preset": "mesh", "rounds": 4}))["Cost"] == "Nothing: the task pays no device."


def test_the_planner_is_asked_only_about_chosen_devices() -> None:
    devices = [{"id": f"d{n}", "name": f"d{n}", "owner_id": "o", "kind": "", "state": "active"} for n in range(4)]
    ties = [{"device_a": "d0", "device_b": "d2", "direct": 0.9, "relations": []}]
    ties.append({"device_a": "d1", "device_b": "d2", "direct": 0.5, "relations": []})
    graph = Graph.of({"devices": devices, "ties": ties, "at": 0.0})
    chosen = [0, 2, 3]
    question = what_if_clusters(graph, {"parameters": {"privacy": {"noise_max": 0.3}}}, chosen)
    direct = np.array(question["direct"])
    assert direct.shape == (3, 3)
    assert (direct == direct.T).all()
    assert direct[0, 1] == 0.9
    assert direct.sum() == pytest.approx(1.8)
    assert question["noise_max"] == 0.3
    answer = {"clusters": [{"members": [0, 1], "head": 1}, {"members": [2], "head": 2}], "noise": [0.0, 0.0, 0.3]}
    assignments = {assignment["device_id"]: assignment for assignment in plan_of(answer, graph, chosen)["assignments"]}
    assert assignments["d0"]["role"] == "member"
    assert assignments["d0"]["head_device_id"] == "d2"
    assert assignments["d3"]["role"] == "solo"
    assert assignments["d3"]["noise_multiplier"] == 0.3


def test_secure_sums_are_asked_for_in_the_form_and_say_who_sees_what_then() -> None:
    values = defaults("fedavg") | {"rounds": 10, "min_devices": 5}
    assert "cohort_devices" not in {field.key for field in shown(BY_NAME["fedavg"], values)}
    clear = specification(BY_NAME["fedavg"], "n", "", values, auto_start=True)
    assert clear["parameters"]["sums"] == {"mode": "clear"}
    assert "the device's update" in dict(who_sees(axes_of(clear)))["The platform"]
    secure = specification(
        BY_NAME["fedavg"], "n", "", values | {"sums": "secure", "cohort_devices": 6}, auto_start=True
    )
    assert secure["parameters"]["sums"] == {"mode": "secure", "cohort_devices": 6}
    seen = dict(who_sees(axes_of(secure)))
    assert "no single one" in seen["The platform"]
    assert "threshold" in seen["The clerks of a sum"]
