"""Rounds in clusters: a member's work counts when its head delivers, and a head that is lost orphans its members.

Everything is by device id. `head_of` names the head of every member; `heard` holds what heads reported of members:
(outcome, note). A member that has handed in its report is "delivered" in the books, but is worth nothing until its
head has delivered with its letter in the sum.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from services.aggregation.domain.records import Participation
from services.aggregation.domain.rounds import witness_pairs

HEAD_PATIENCE = 0.8
"""Share of a round's time after which a head that has not delivered is given up."""
LOST = ("declined", "dropped", "rejected")


Heard = Mapping[str, tuple[str, str]]


def effective_state(device: str, states: Mapping[str, str], head_of: Mapping[str, str], heard: Heard) -> str:
    """What a device's state amounts to: a member's depends on its head's.

    A member whose head is under way is "assigned" whatever it has reported, one whose head delivered without it is
    "dropped" or "rejected", one whose head delivers no more is "orphaned".
    """
    state, head = states[device], head_of.get(device, "")
    if not head or state not in ("assigned", "delivered"):
        return state
    if states.get(head) == "assigned":
        return "assigned"
    if states.get(head) != "delivered":
        return "orphaned"
    outcome = heard.get(device, ("dropped", ""))[0]
    return state if outcome == "delivered" else outcome


def lost_heads(
    states: Mapping[str, str], head_of: Mapping[str, str], *, overdue: bool, unreachable: Collection[str] = ()
) -> dict[str, list[str]]:
    """Heads that will not deliver, each with the members it leaves behind; a head without members left is no loss."""
    orphans: dict[str, list[str]] = {}
    for member, head in sorted(head_of.items()):
        waited_for = states.get(head, "dropped")
        gone = waited_for in LOST or (waited_for == "assigned" and (overdue or head in unreachable))
        if gone and states[member] in ("assigned", "delivered"):
            orphans.setdefault(head, []).append(member)
    return orphans


def verdicts(everybody: Sequence[Participation], head_of: Mapping[str, str], heard: Heard) -> list[Participation]:
    """Everybody as the round ends for them: members by what became of their letters."""
    states = {p.device_id: p.state for p in everybody}
    return [_verdict(p, states, head_of, heard) for p in everybody]


def _verdict(p: Participation, states: Mapping[str, str], head_of: Mapping[str, str], heard: Heard) -> Participation:
    head = head_of.get(p.device_id, "")
    if not head or p.state not in ("assigned", "delivered"):
        return p
    if states.get(head) != "delivered":
        return replace(p, state="orphaned", note=f"its head {head} delivered nothing")
    outcome, note = heard.get(p.device_id, ("dropped", "its head went on without it"))
    if outcome == "delivered":
        return replace(p, state="delivered", form=p.form or "report")
    return replace(p, state=outcome, note=f"by its head: {note or outcome}"[:500])


def conduct_pairs(
    everybody: Sequence[Participation], heads: Mapping[str, Sequence[str]], seed: int, number: int
) -> list[tuple[str, str]]:
    """Pairs whose conduct a round shows: each member with its heads, and with a few others of its cluster.

    `heads` names for every member the head it worked for, and any that was lost before: those it left behind know it.
    """
    present = {p.device_id for p in everybody}
    clusters: dict[str, list[str]] = {}
    for member, own in heads.items():
        for head in own:
            clusters.setdefault(head, []).append(member)
    pairs = {(min(member, head), max(member, head)) for head, members in clusters.items() for member in members}
    for members in clusters.values():
        pairs |= set(witness_pairs(members, seed, number))
    return sorted(pair for pair in pairs if present.issuperset(pair))


@dataclass(frozen=True, slots=True)
class Stakes:
    """What quality earns and clusters cost: λ_p, λ_c and ζ of [SCFL] §IV-D, as the plan played for them."""

    price: float
    member_cost: float
    head_reward: float


def divide(qualities: Mapping[str, float], alone: Mapping[str, float], head: str, stakes: Stakes) -> dict[str, float]:
    """ψ of everybody in a realised cluster. [SCFL] eqs (15)-(18), with ζ given to the head (spec A9).

    V(C) = λ_p Σq − λ_c |C| and ψ_n = q_n/Σq · (V(C) − Σ V({l}) − ζ) + V({n}) + (ζ if n is head), so Σψ = V(C). A
    cluster of one is worth V({n}), whatever it was planned to be.
    """
    if len(qualities) == 1:
        return {device: alone[device] for device in qualities}
    total = math.fsum(qualities.values())
    value = stakes.price * total - stakes.member_cost * len(qualities)
    extra = value - math.fsum(alone[device] for device in qualities) - stakes.head_reward
    return {
        device: quality / total * extra + alone[device] + (stakes.head_reward if device == head else 0.0)
        for device, quality in qualities.items()
    }


def round_off(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole numbers that sum to the rounded-down total: the largest remainders are rounded up, ties by id."""
    floors = {device: math.floor(amount) for device, amount in amounts.items()}
    missing = math.floor(sum(amounts.values(), Fraction(0))) - sum(floors.values())
    by_remainder = sorted(amounts, key=lambda device: (floors[device] - amounts[device], device))
    return {device: floors[device] + (device in set(by_remainder[:missing])) for device in amounts}


def owed(payoffs: Mapping[str, float], microcredits_per_point: float, pot_microcredits: int) -> dict[str, int]:
    """Micro-credits owed for payoffs: at a price per point, or, when that is 0, shares of the round's pot.

    A negative payoff is owed nothing. Fractions keep the sum exact to the micro-credit.
    """
    points = {device: max(Fraction(0), Fraction(payoff)) for device, payoff in payoffs.items()}
    total = sum(points.values(), Fraction(0))
    if microcredits_per_point > 0:
        rate = Fraction(microcredits_per_point)
    elif total > 0:
        rate = Fraction(pot_microcredits) / total
    else:
        rate = Fraction(0)
    return round_off({device: value * rate for device, value in points.items()})
