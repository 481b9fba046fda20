"""What a new task would mean: ε after all rounds, cost, time, and the clusters it would begin with."""

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
Said = tuple[str, str]
RAW_MEMBERS = "Members who trust their head send without noise: no ε describes that."


def consequences(spec: Mapping[str, Any]) -> list[Said]:
    """(what, in words) of a specification that has passed validation."""
    full = axes_of(spec)
    rounds = int(full.get("rounds") or 1)
    return [
        ("Privacy after all rounds", privacy_words(full, rounds)),
        ("Cost", _cost(full, rounds)),
        ("Time", _time(full, rounds)),
    ]


def privacy_words(spec: Mapping[str, Any], rounds: int) -> str:
    """What a device that takes part in every round gives away."""
    parameters = spec.get("parameters", {})
    if spec["privacy"] == "none":
        return "No noise is added: those who see an update may learn whatever is in it."
    if spec["privacy"] == "uniform":
        result = Lifetime.of(parameters, rounds)
        if result is None:
            return "Say how much noise: a target ε, or a noise multiplier."
        return _told(result.epsilon, "Everybody spends, against the device left out,", words.number(result.delta))
    if spec["privacy"] == "trust":
        sigma = TrustPrivacy.of(parameters).noise_max
        spent = exact_epsilon(sigma / math.sqrt(rounds), DELTA)
        return f"{_told(spent, 'A device alone spends')} {RAW_MEMBERS}"
    if spec["privacy"] == "partial":
        return _mesh(PartialPrivacy.of(parameters).epsilon, rounds)
    if spec.get("preset") == "survey":
        variance = CorrelatedParameters.of(parameters).variance_low
        return _told(exact_epsilon(math.sqrt(variance), 1e-5), "An answer with the least noise spends", "1e−5")
    if spec["privacy"] == "priced":
        return "Each device decides how much it sells, round by round, and stops at its owner's limit."
    return "The planner chooses each device's noise from its samples; devices stop at their owners' limits."


def _mesh(epsilon: float, rounds: int) -> str:
    charges = [laplace_charge("t", number, "letter", "example", epsilon) for number in range(min(rounds, MOST_CHARGES))]
    spent = total(charges, DELTA) if rounds <= MOST_CHARGES else rounds * epsilon
    told = _told(spent, "A device that adds noise spends")
    return f"{told} Devices whose neighbours are all trusted send without noise: no ε describes that."


def _told(spent: float, who: str, delta: str = "1e−6") -> str:
    return f"{who} ε = {words.number(spent, 3)} at δ = {delta}: {words.strength(spent)}."


def _cost(spec: Mapping[str, Any], rounds: int) -> str:
    escrow = int(spec.get("escrow_microcredits") or 0)
    if spec["incentive"] == "none" or not escrow:
        return "Nothing: nobody is paid."
    share = escrow // max(1, rounds)
    mean = words.credits(share, places=4)
    return f"{words.credits(escrow)} credits at most, {mean} a round on average; what is not paid comes back."


def _time(spec: Mapping[str, Any], rounds: int) -> str:
    seconds = float(spec.get("round_seconds") or 600.0)
    most = words.span(seconds * rounds)
    return f"{most} at most if every round succeeds at once; a round ends early when all have delivered."


def what_if_clusters(graph: Graph, spec: Mapping[str, Any], chosen: Sequence[int]) -> dict[str, Any]:
    """The question put to the planner: which clusters would these devices form now?"""
    place = {number: index for index, number in enumerate(chosen)}
    direct = [[0.0] * len(chosen) for _ in chosen]
    for a, b, trust in zip(graph.a, graph.b, graph.trust, strict=True):
        if int(a) in place and int(b) in place:
            first, second = place[int(a)], place[int(b)]
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
    """The planner's answer in the shape of a plan, so that it can be drawn like one."""
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
