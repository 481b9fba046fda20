"""The incentives a task may have: the parameters each takes, and the offers of those that need no game.

A task's parameters are one object shared by its axes; this service reads the section "pricing".
Offers for privacy budgets are in `incentive_stackelberg`, those for a survey in `incentive_correlated`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from coterie.records.enums import QuoteStatus
from services.pricing.domain.records import Offer, Purse, Quote
from services.pricing.errors import BadParameters


class Parameters(BaseModel):
    """Base of every incentive's parameters: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NoParameters(Parameters):
    """ "none" takes no parameters."""


class PotParameters(Parameters):
    """Incentives that share a pot out."""

    round_microcredits: int = Field(default=0, ge=0, le=2**53, description="Pot of a round; 0 = an even share.")


class PayoffParameters(PotParameters):
    """ "payoff": devices share a pot by quality, or are paid what the caller computed."""

    credits_per_point: float = Field(
        default=0.0, ge=0, le=1e9, description="Credits for each point of a cluster's payoff; 0 = shares of the pot."
    )


class ContributionParameters(PotParameters):
    """ "contribution": devices share a round's pot by what their updates were worth to the model."""

    evaluation_seconds: float = Field(default=600.0, gt=0, le=2_592_000, description="Longest wait for the evaluator.")
    evaluations: int = Field(default=2000, ge=2, le=1_000_000, description="Models asked about at most, a round.")


class StackelbergParameters(Parameters):
    """ "stackelberg": the public part of the market for privacy budgets, costs in credits ([MPPFL] section 1.9)."""

    solver: Literal["exact", "mean-field", "iterate", "agnostic"] = Field(
        default="exact", description="How the price is found; agnostic ignores leakage."
    )
    influence: Literal["direct", "combined", "declared"] = Field(
        default="direct",
        description="Ties that hops are counted along: direct trust; combined trust, which holds paths already; or "
        "what owners who are friends declare of each other.",
    )
    hops: int = Field(default=5, ge=1, le=100)
    discount: float = Field(default=0.5, gt=0, lt=1)
    floor: float = Field(default=0.0, ge=0, le=1)
    risk_weight: float = Field(default=0.05, ge=0, lt=1)
    balance: float = Field(default=0.5, gt=0, lt=1)
    accuracy_weight: float = Field(default=1.0, ge=0, description="ε of every device, unless curvature is given.")
    curvature: float | None = Field(
        default=None, gt=0, le=1e30, description="β/μ²; then ε_i = p(β/μ²)S²θ_i²/D_i² by samples and model size."
    )
    cost_quadratic: float = Field(default=1.0, gt=0, description="Expected a; true costs stay on the devices.")
    cost_linear: float = Field(default=0.04, ge=0, description="Expected b.")
    cost_fixed: float = Field(
        default=0.0, ge=0, le=1e9, description="Expected C of computing a round; the price covers it."
    )
    cost_spread: float = Field(
        default=0.0, ge=0, le=0.9, description="Prior: a and b are even within ± this share of what is expected."
    )
    headroom: float = Field(default=2.0, ge=1, le=1000, description="A device may sell this often what is expected.")
    round_microcredits: int = Field(default=0, ge=0, le=2**53, description="Pot shared by quality besides the price.")
    credits_per_point: float = Field(
        default=0.0, ge=0, le=1e9, description="In clusters, credits for each point of payoff; 0 = shares of the pot."
    )

    @model_validator(mode="after")
    def _believed_by_a_leader(self) -> StackelbergParameters:
        if self.cost_spread and self.solver not in ("exact", "mean-field"):
            raise ValueError(
                f'cost_spread is a prior of the leaders "exact" and "mean-field", which "{self.solver}" does not have; '
                "leave it out or choose one of them"
            )
        return self


class Alike(Parameters):
    """Users whose data are alike: w of every two of them."""

    devices: tuple[str, ...] = Field(min_length=2, max_length=2000, description="Ids of their devices.")
    correlation: float = Field(gt=0, le=1e9)


class CorrelatedParameters(Parameters):
    """ "correlated": the public part of a survey ([CAPP]), costs in credits."""

    constant: float = Field(default=10.0, gt=0, le=700)
    variance_low: float = Field(default=0.01, gt=0)
    variance_high: float | None = Field(default=None, gt=0, description="Empty = e^constant.")
    error: float = Field(default=math.sqrt(200.0), gt=0)
    variance_model: Literal["paper", "exact"] = "paper"
    prices: Literal["pivot", "even", "personal"] = "pivot"
    correlation: float | None = Field(
        default=None, gt=0, le=1e9, description="w of every two users' data; empty = trust between them."
    )
    alike: tuple[Alike, ...] = Field(
        default=(), max_length=1000, description="Groups whose data are alike, each with its own w; the largest counts."
    )
    known: tuple[str, ...] = Field(
        default=(), max_length=1000, description="Devices whose answers the adversary knows already."
    )
    own_care: float = Field(default=1.0, ge=0, description="s_ii: what its own privacy is worth to a user.")
    social_care: float = Field(default=1.0, ge=0, description="s_ij = this × trust: what a friend's is.")

    @model_validator(mode="after")
    def _known_exactly(self) -> CorrelatedParameters:
        if self.known and self.variance_model != "exact":
            raise ValueError('the paper\'s variance holds for an empty set "known" only; give variance_model "exact"')
        return self


MODELS: dict[str, type[Parameters]] = {
    "none": NoParameters,
    "payoff": PayoffParameters,
    "contribution": ContributionParameters,
    "stackelberg": StackelbergParameters,
    "correlated": CorrelatedParameters,
}
NEEDS_ESCROW = ("stackelberg", "correlated", "contribution")


def read_parameters(incentive: str, document: Mapping[str, Any]) -> Parameters:
    """The incentive's parameters, defaults filled in, from a task's."""
    return _validated(incentive, document.get("pricing", {}))


def complete_parameters(
    incentive: str, document: Mapping[str, Any], escrow_microcredits: int, rounds: int
) -> dict[str, Any]:
    """A task's parameters with every default under "pricing" filled in; raises when it could not be priced."""
    parameters = read_parameters(incentive, document)
    if escrow_microcredits < 0 or rounds < 0:
        raise BadParameters(f"escrow and rounds must not be negative, got {escrow_microcredits} and {rounds}")
    if incentive in NEEDS_ESCROW and escrow_microcredits == 0:
        raise BadParameters(f"{incentive!r} pays devices: give the task escrow_microcredits of at least 1")
    pot = getattr(parameters, "round_microcredits", 0)
    if pot > escrow_microcredits:
        raise BadParameters(f"round_microcredits is {pot}, more than the escrow of {escrow_microcredits}; lower it")
    return {**document, "pricing": parameters.model_dump(exclude_none=True)}


def _validated(incentive: str, given: Mapping[str, Any]) -> Parameters:
    model = MODELS.get(incentive)
    if model is None:
        raise BadParameters(f"no incentive {incentive[:40]!r}; choose one of: {', '.join(MODELS)}")
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
    return Quote(task_id, round_number, "none", QuoteStatus.OK, tuple(Offer(device_id) for device_id in device_ids))


def quote_pot(
    task_id: str, round_number: int, incentive: str, device_ids: list[str], parameters: PotParameters, purse: Purse
) -> Quote:
    """A pot to be shared by quality; what the average device may expect of it: "payoff", "contribution"."""
    pot = min(parameters.round_microcredits or purse.share_microcredits, purse.escrow_microcredits)
    even = pot // max(1, len(device_ids))
    offers = tuple(
        Offer(device_id, base_microcredits=even, most_microcredits=purse.escrow_microcredits)
        for device_id in device_ids
    )
    return Quote(task_id, round_number, incentive, QuoteStatus.OK, offers, pot, {"pot_microcredits": pot})
