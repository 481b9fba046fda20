"""Work, updates and letters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import Amount, Body, Finite, Fraction, Id, Int32, Prose, Word


class PrivacyCharge(Body):
    """One use of a privacy mechanism."""

    mechanism: Literal["gaussian", "laplace", "zcdp", "raw"]
    parameter: Amount
    """Noise multiplier (gaussian), ε (laplace) or ρ (zcdp)."""
    unit: Literal["example", "device"]
    sampling_rate: Fraction = 0.0
    """Fraction of the data used; 0 or 1 = all."""
    steps: Int32 = 0
    """Repetitions; 0 means 1."""
    adjacency: Literal["left-out", "replaced", ""] = ""
    """What the loss compares a contribution with: none, or any other; left out, as version 0.1.0 meant."""


class MemberReport(Body):
    """How a member did, as its head saw it."""

    device_id: Id
    outcome: Literal["delivered", "dropped", "rejected"]
    note: Prose = ""
    weight: Amount = 0.0


class UpdateReport(Body):
    """What comes with an update, as the JSON text of the header `Coterie-Update`."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"form": "mean", "weight": 150, "metrics": {"accuracy": 0.91, "loss": 0.3}}}
    )

    form: Literal["mean", "sum", "report"] = "mean"
    """"mean": the model's change; "sum": an un-normalised weighted sum; "report": no tensors, metrics only."""
    weight: Amount = 0.0
    """Samples, quality, or the sum's total weight."""
    metrics: Annotated[dict[Word, Finite], Field(default_factory=dict, max_length=32)]
    model_index: Int32 = 0
    budget: Amount = 0.0
    """zCDP budget or noise variance it chose; 0 = none."""
    privacy: Annotated[list[PrivacyCharge], Field(default_factory=list, max_length=64)]
    members: Annotated[list[MemberReport], Field(default_factory=list, max_length=10_000)]


class Decline(Body):
    """Why a device declines."""

    model_config = ConfigDict(json_schema_extra={"example": {"why": "privacy limit reached"}})

    why: Prose = ""
