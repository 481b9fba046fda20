"""The incentives of a task, and the offers of those that need no game.

A task's parameters are one object shared by its axes; this service reads the section "pricing".
`incentive_stackelberg` makes the offers for privacy budgets, `incentive_correlated` those of a survey.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.parameters import ParameterGroup
from coterie.parameters.pricing import PotParameters
from coterie.parameters.registry import check_keys, sections
from coterie.records.enums import QuoteStatus
from services.kit.rpc.parameters import BadParameters, refusing, validate
from services.pricing.domain.records import Offer, Quote, RoundBudget

MODELS: dict[str, type[ParameterGroup]] = {choice: kind for kind in sections()["pricing"] for choice in kind.choices}
"""Parameter groups by incentive, for those that have any."""
NONE = "none"
NEEDS_ESCROW = ("stackelberg", "correlated", "contribution")


def read_parameters(incentive: str, document: Mapping[str, Any]) -> ParameterGroup | None:
    """Return the incentive's parameters with defaults filled in; None for "none"."""
    if incentive not in (NONE, *MODELS):
        raise BadParameters(f"unknown incentive {incentive[:40]!r}; choose one of: {', '.join((NONE, *MODELS))}")
    if incentive != NONE:
        return validate(MODELS[incentive], document)
    with refusing():
        check_keys({"pricing": document.get("pricing", {})}, {"incentive": NONE})
    return None


def complete_parameters(
    incentive: str, document: Mapping[str, Any], escrow_microcredits: int, rounds: int
) -> dict[str, Any]:
    """Return a task's parameters with every default under "pricing" filled in; raise when it cannot be priced."""
    parameters = read_parameters(incentive, document)
    if escrow_microcredits < 0 or rounds < 0:
        raise BadParameters(f"escrow and rounds must not be negative, got {escrow_microcredits} and {rounds}")
    if incentive in NEEDS_ESCROW and escrow_microcredits == 0:
        raise BadParameters(f"{incentive!r} pays devices, but escrow_microcredits is 0; set it to at least 1")
    pot = getattr(parameters, "round_microcredits", 0)
    if pot > escrow_microcredits:
        raise BadParameters(f"round_microcredits is {pot}, more than the escrow of {escrow_microcredits}; lower it")
    return {**document, "pricing": {} if parameters is None else parameters.to_dict()}


def quote_nothing(task_id: str, round_number: int, device_ids: list[str]) -> Quote:
    """Return zero offers, for "none"."""
    return Quote(task_id, round_number, "none", QuoteStatus.OK, tuple(Offer(device_id) for device_id in device_ids))


def quote_pot(
    task_id: str,
    round_number: int,
    incentive: str,
    device_ids: list[str],
    parameters: PotParameters,
    round_budget: RoundBudget,
) -> Quote:
    """Return the pot of a "payoff" or "contribution" round, with an even share as each device's expected payment."""
    pot = min(parameters.round_microcredits or round_budget.share_microcredits, round_budget.escrow_microcredits)
    even = pot // max(1, len(device_ids))
    offers = tuple(
        Offer(device_id, base_microcredits=even, most_microcredits=round_budget.escrow_microcredits)
        for device_id in device_ids
    )
    return Quote(
        task_id=task_id,
        round=round_number,
        incentive=incentive,
        status=QuoteStatus.OK,
        offers=offers,
        pot_microcredits=pot,
        details={"pot_microcredits": pot},
    )
