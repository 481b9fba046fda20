"""The incentives a task may have: the parameters each takes, and the offers of those that need no game.

A task's parameters are one JSON object shared by its three axes; this service reads the object under "pricing".
Offers for privacy budgets are in `incentive_stackelberg`, those for a survey in `incentive_correlated`.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.pricing.domain.records import Offer, Purse, Quote
from services.pricing.errors import BadParameters


class Parameters(BaseModel):
    """Base of every incentive's parameters: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NoParameters(Parameters):
    """ "none" takes no parameters."""


class PayoffParameters(Parameters):
    """ "payoff": devices share a pot by quality, or are paid what the caller computed."""

    round_microcredits: int = Field(default=0, ge=0, le=2**53, description="Pot of a round; 0 = an even share.")
    credits_per_point: float = Field(
        default=0.0, ge=0, le=1e9, description="Credits for each point of a cluster's payoff; 0 = shares of the pot."
    )


class StackelbergParameters(Parameters):
    """ "stackelberg": the public part of the market for privacy budgets, costs in credits ([MPPFL] section 1.9)."""

    solver: Literal["exact", "mean-field", "iterate", "agnostic"] = "exact"
    hops: int = Field(default=5, ge=1, le=100)
    discount: float = Field(default=0.5, gt=0, lt=1)
    floor: float = Field(default=0.0, ge=0, le=1)
    risk_weight: float = Field(default=0.05, ge=0, lt=1)
    balance: float = Field(default=0.5, gt=0, lt=1)
    accuracy_weight: float = Field(default=1.0, ge=0)
    cost_quadratic: float = Field(default=1.0, gt=0, description="Expected a; true costs stay on the devices.")
    cost_linear: float = Field(default=0.04, ge=0, description="Expected b.")
    headroom: float = Field(default=2.0, ge=1, le=1000, description="A device may sell this often what is expected.")
    round_microcredits: int = Field(default=0, ge=0, le=2**53, description="Pot shared by quality besides the price.")
    credits_per_point: float = Field(
        default=0.0, ge=0, le=1e9, description="In clusters, credits for each point of payoff; 0 = shares of the pot."
    )


class CorrelatedParameters(Parameters):
    """ "correlated": the public part of a survey ([CAPP]), costs in credits."""

    constant: float = Field(default=10.0, gt=0, le=700)
    variance_low: float = Field(default=0.01, gt=0)
    variance_high: float | None = Field(default=None, gt=0, description="Empty = e^constant.")
    error: float = Field(default=math.sqrt(200.0), gt=0)
    variance_model: Literal["paper", "exact"] = "paper"
    prices: Literal["pivot", "even", "personal"] = "pivot"
    own_care: float = Field(default=1.0, ge=0, description="s_ii: what its own privacy is worth to a user.")
    social_care: float = Field(default=1.0, ge=0, description="s_ij = this × trust: what a friend's is.")


MODELS: dict[str, type[Parameters]] = {
    "none": NoParameters,
    "payoff": PayoffParameters,
    "stackelberg": StackelbergParameters,
    "correlated": CorrelatedParameters,
}
NEEDS_ESCROW = ("stackelberg", "correlated")


def read_parameters(incentive: str, text: str) -> Parameters:
    """The incentive's parameters, defaults filled in, from the JSON object `text`."""
    return _validated(incentive, _read_object(text).get("pricing", {}))


def complete_parameters(incentive: str, text: str, escrow_microcredits: int, rounds: int) -> str:
    """`text` with every default under "pricing" filled in; raises when the task could not be priced."""
    document = _read_object(text)
    parameters = _validated(incentive, document.get("pricing", {}))
    if escrow_microcredits < 0 or rounds < 0:
        raise BadParameters(f"escrow and rounds must not be negative, got {escrow_microcredits} and {rounds}")
    if incentive in NEEDS_ESCROW and escrow_microcredits == 0:
        raise BadParameters(f"{incentive!r} pays devices for privacy: give the task escrow_microcredits of at least 1")
    pot = getattr(parameters, "round_microcredits", 0)
    if pot > escrow_microcredits:
        raise BadParameters(f"round_microcredits is {pot}, more than the escrow of {escrow_microcredits}; lower it")
    return json.dumps({**document, "pricing": parameters.model_dump()})


def _read_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text or "{}", parse_constant=_refuse_constant)
    except ValueError as error:
        raise BadParameters(f"the parameters are not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadParameters(f"the parameters must be a JSON object, not {type(document).__name__}")
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _validated(incentive: str, given: object) -> Parameters:
    model = MODELS.get(incentive)
    if model is None:
        raise BadParameters(f"no incentive {incentive[:40]!r}; choose one of: {', '.join(MODELS)}")
    if not isinstance(given, dict):
        raise BadParameters(f'parameters["pricing"] must be an object, not {type(given).__name__}')
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = (
            f"pricing.{'.'.join(map(str, item['loc']))}: {item['msg']} (got {str(item['input'])[:60]})"
            for item in error.errors()[:5]
        )
        known = ", ".join(model.model_fields) or "nothing"
        raise BadParameters(f"{'; '.join(problems)}; {incentive!r} takes: {known}") from error


def quote_nothing(task_id: str, round_number: int, device_ids: list[str]) -> Quote:
    """Zero offers: "none"."""
    return Quote(task_id, round_number, "none", "ok", tuple(Offer(device_id) for device_id in device_ids))


def quote_pot(
    task_id: str, round_number: int, device_ids: list[str], parameters: PayoffParameters, purse: Purse
) -> Quote:
    """A pot to be shared by quality; what the average device may expect of it: "payoff"."""
    pot = min(parameters.round_microcredits or purse.share_microcredits, purse.escrow_microcredits)
    even = pot // max(1, len(device_ids))
    offers = tuple(
        Offer(device_id, base_microcredits=even, most_microcredits=purse.escrow_microcredits)
        for device_id in device_ids
    )
    return Quote(task_id, round_number, "payoff", "ok", offers, pot, {"pot_microcredits": pot})
