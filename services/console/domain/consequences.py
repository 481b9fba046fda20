"""Consequences of a new task: ε after all rounds, cost, time, and its first clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.parameters.pricing import CorrelatedParameters
from coterie.parameters.privacy import PartialPrivacy, TrustPrivacy
from coterie.privacy.accounting import laplace_charge, total
from coterie.privacy.gaussian import exact_epsilon
from coterie.privacy.lifetime import Lifetime
from services.console.domain import words
from services.console.domain.graph import Graph
from services.console.domain.presets import axes_of

DELTA = 1e-6
MOST_CHARGES = 1_000
MOST_WHAT_IF = 200
Meaning = tuple[str, str]
RAW_MEMBERS = "Members that trust their head send without noise: no ε describes that."


def consequences(spec: Mapping[str, Any]) -> list[Meaning]:
    """Return (title, explanation) pairs for a valid specification."""
    full = axes_of(spec)
    rounds = int(full.get("rounds") or 1)
    return [
        ("Privacy after all rounds", privacy_words(full, rounds)),
        ("Cost", _cost(full, rounds)),
        ("Time", _time(full, rounds)),
    ]


def privacy_words(spec: Mapping[str, Any], rounds: int) -> str:
    """Describe what a device that takes part in every round gives away."""
    parameters = spec.get("parameters", {})
    if spec["privacy"] == "none":
        return "No noise is added: recipients of an update may learn everything in it."
    if spec["privacy"] == "uniform":
        result = Lifetime.of(parameters, rounds)
        if result is None:
            return "Choose a target ε or a noise multiplier."
        return _epsilon_words(
            result.epsilon, "Each device spends, compared with leaving it out,", words.number(result.delta)
        )
    if spec["privacy"] == "trust":
        sigma = TrustPrivacy.of(parameters).noise_max
        spent = exact_epsilon(sigma / math.sqrt(rounds), DELTA)
        return f"{_epsilon_words(spent, 'A device without a cluster spends')} {RAW_MEMBERS}"
    if spec["privacy"] == "partial":
        return _mesh(PartialPrivacy.of(parameters).epsilon, rounds)
    if spec.get("preset") == "survey":
        variance = CorrelatedParameters.of(parameters).variance_low
        return _epsilon_words(exact_epsilon(math.sqrt(variance), 1e-5), "An answer with least noise spends", "1e−5")
    if spec["privacy"] == "priced":
        return "Each device decides in each round how much privacy it sells, and stops at its owner's limit."
    return "The planner chooses each device's noise from its samples; devices stop at their owners' limits."


def _mesh(epsilon: float, rounds: int) -> str:
    charges = [laplace_charge("t", number, "letter", "example", epsilon) for number in range(min(rounds, MOST_CHARGES))]
    spent = total(charges, DELTA) if rounds <= MOST_CHARGES else rounds * epsilon
    strength = _epsilon_words(spent, "A device with noise spends")
    return f"{strength} Devices whose neighbours are all trusted send without noise: no ε describes that."


def _epsilon_words(spent: float, who: str, delta: str = "1e−6") -> str:
    return f"{who} ε = {words.number(spent, 3)} at δ = {delta}: {words.strength(spent)}."


def _cost(spec: Mapping[str, Any], rounds: int) -> str:
    escrow = int(spec.get("escrow_microcredits") or 0)
    if spec["incentive"] == "none" or not escrow:
        return "Nothing: the task pays no device."
    share = escrow // max(1, rounds)
    mean = words.credits(share, places=4)
    return f"{words.credits(escrow)} credits at most, {mean} per round on average; unspent credits return to you."


def _time(spec: Mapping[str, Any], rounds: int) -> str:
    seconds = float(spec.get("round_seconds") or 600.0)
    most = words.span(seconds * rounds)
    return f"{most} at most if no round is repeated; a round ends early when all devices have delivered."


def what_if_clusters(graph: Graph, spec: Mapping[str, Any], chosen: Sequence[int]) -> dict[str, Any]:
    """Build the what-if request: which clusters would these devices form now?"""
    index_of = {number: index for index, number in enumerate(chosen)}
    direct = [[0.0] * len(chosen) for _ in chosen]
    for a, b, trust in zip(graph.a, graph.b, graph.trust, strict=True):
        if int(a) in index_of and int(b) in index_of:
            first, second = index_of[int(a)], index_of[int(b)]
            direct[first][second] = direct[second][first] = float(trust)
    privacy = TrustPrivacy.of(spec.get("parameters", {}))
    return {
        "direct": direct,
        "non_iid": 1.0,
        "method": "sweep",
        "noise_max": privacy.noise_max,
        "trust_threshold": privacy.trust_threshold,
        "calibration": privacy.calibration,
    }


def plan_of(answer: Mapping[str, Any], graph: Graph, chosen: Sequence[int]) -> dict[str, Any]:
    """Convert the planner's response to the form of a plan, so that the page can draw it."""
    assignments = []
    for group, cluster in enumerate(answer["clusters"]):
        alone = len(cluster["members"]) == 1
        for member in cluster["members"]:
            role = "solo" if alone else "head" if member == cluster["head"] else "member"
            assignments.append(
                {
                    "device_id": graph.ids[chosen[member]],
                    "role": role,
                    "group": -1 if alone else group,
                    "head_device_id": "" if alone else graph.ids[chosen[cluster["head"]]],
                    "noise_multiplier": float(answer["noise"][member]),
                    "noised": False,
                    "neighbours": [],
                }
            )
    return {"topology": "clusters", "assignments": assignments, "details": {}, "version": 0}
