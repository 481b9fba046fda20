"""The report of a round that a device delivers; the work it answers is `coterie.records.WorkItem`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.accounting import Charge
from coterie.privacy.claims import claim_of

Tensors: TypeAlias = Mapping[str, NDArray[np.floating[Any]]]
Form: TypeAlias = Literal["mean", "sum", "report", "masked"]


@dataclass(frozen=True, slots=True)
class MemberReport:
    """How a member did, as its head saw it."""

    device_id: str
    outcome: Literal["delivered", "dropped", "rejected"]
    note: str = ""
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class SumSeal:
    """What binds a masked update to its sum: the digest of the terms and the device's signature, hexadecimal."""

    terms: str
    signature: str


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """What a strategy hands back.

    Attributes:
        tensors: change of the model ("mean"), a weighted sum of changes ("sum"), masked words and sealed seeds
            ("masked"), or None ("report").
        weight: samples, quality, or a sum's total weight.
        metrics: finite figures about this round.
        public_metrics: whether those tell nothing of private data; a platform takes no others beside noise.
        model_index: model line that was trained.
        budget: zCDP budget or noise variance the device chose; 0 = none.
        privacy: what noised releases of this round cost.
        members: a head's report on its members.
        sum: of a masked update, what binds it to its sum.
    """

    tensors: Tensors | None
    weight: float
    form: Form = "mean"
    metrics: Mapping[str, float] = field(default_factory=dict)
    model_index: int = 0
    budget: float = 0.0
    privacy: tuple[Charge, ...] = ()
    members: tuple[MemberReport, ...] = ()
    sum: SumSeal | None = None
    public_metrics: bool = False

    def report(self) -> str:
        """Everything but the tensors, as the JSON text that travels beside them."""
        document = {
            "form": self.form,
            "weight": self.weight,
            "metrics": dict(self.metrics),
            "model_index": self.model_index,
            "budget": self.budget,
            "privacy": [claim_of(charge).to_dict() for charge in self.privacy],
            "members": [asdict(member) for member in self.members],
            **({} if self.sum is None else {"sum": asdict(self.sum)}),
            **({"public_metrics": True} if self.metrics and self.public_metrics else {}),
        }
        return json.dumps(document, sort_keys=True, allow_nan=False)


def without_figures(report: str) -> str:
    """A report that was stored before figures beside noise needed the word that they are public, without them."""
    document = json.loads(report)
    if not document["metrics"] or document.get("public_metrics"):
        return report
    return json.dumps(document | {"metrics": {}}, sort_keys=True, allow_nan=False)
