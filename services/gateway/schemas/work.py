"""Work, updates and letters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from coterie.records.privacy import PrivacyClaim
from services.gateway.schemas.base import Amount, Body, Digest, Finite, HexSignature, Id, Int32, OpenEnum, Prose


class MemberReport(Body):
    """A head's report on a member."""

    device_id: Id
    outcome: Literal["delivered", "dropped", "rejected"]
    note: Prose = ""
    weight: Amount = 0.0


class SumSeal(Body):
    """Binds a masked update to the terms of its sum."""

    terms: Digest
    signature: HexSignature


class UpdateReport(Body):
    """Report with an update: the JSON text of the header `Coterie-Update`."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"form": "mean", "weight": 150, "metrics": {"accuracy": 0.91, "loss": 0.3}}}
    )

    form: Literal["mean", "sum", "report", "masked"] = "mean"
    """"mean": the model's change; "sum": an un-normalised weighted sum; "report": no tensors, metrics only; "masked":
    words of a secure sum, with the letters to its clerks."""
    weight: Amount = 0.0
    """Samples, quality, or the sum's total weight."""
    metrics: Annotated[dict[OpenEnum, Finite], Field(default_factory=dict, max_length=32)]
    public_metrics: bool = False
    """Whether the metrics come from samples that the owner calls public, or from no data; others are refused unless the
    task's privacy is "none"."""
    model_index: Int32 = 0
    budget: Amount = 0.0
    """zCDP budget or noise variance that the device chose; 0 = none."""
    privacy: Annotated[list[PrivacyClaim], Field(default_factory=list, max_length=64)]
    members: Annotated[list[MemberReport], Field(default_factory=list, max_length=10_000)]
    sum: SumSeal | None = None
    """Of a masked update: its terms and the device's signature."""


class Objection(Body):
    """Why a member objects to its head's verdict."""

    model_config = ConfigDict(json_schema_extra={"example": {"why": "my letter was in its box in time"}})

    why: Prose = ""


class Decline(Body):
    """Why a device declines."""

    model_config = ConfigDict(json_schema_extra={"example": {"why": "privacy limit reached"}})

    why: Prose = ""
    strangers: Annotated[list[Id], Field(default_factory=list, max_length=1000)]
    """Devices of its work that its owner does not know, clerks included; later plans of the task separate them."""
    terms: Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")] = ""
    """Digest of the terms of the declined secure sum, in hexadecimal; it applies to no other terms."""
