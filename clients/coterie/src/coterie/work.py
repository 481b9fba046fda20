"""What a device hands back of a round; what it is asked to do is `coterie.records.WorkItem`."""

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
Form: TypeAlias = Literal["mean", "sum", "report"]


@dataclass(frozen=True, slots=True)
class MemberReport:
    """How a member did, as its head saw it."""

    device_id: str
    outcome: Literal["delivered", "dropped", "rejected"]
    note: str = ""
    weight: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """What a procedure hands back.

    Attributes:
        tensors: change of the model ("mean"), a weighted sum of changes ("sum"), or None ("report").
        weight: samples, quality, or a sum's total weight.
        metrics: finite figures about this round.
        model_index: model line that was trained.
        budget: zCDP budget or noise variance the device chose; 0 = none.
        privacy: what noised releases of this round cost.
        members: a head's report on its members.
    """

    tensors: Tensors | None
    weight: float
    form: Form = "mean"
    metrics: Mapping[str, float] = field(default_factory=dict)
    model_index: int = 0
    budget: float = 0.0
    privacy: tuple[Charge, ...] = ()
    members: tuple[MemberReport, ...] = ()

    def report(self) -> str:
        """Everything but the tensors, as the JSON text that travels beside them."""
        document = {
            "form": self.form,
            "weight": self.weight,
            "metrics": dict(self.metrics),
            "model_index": self.model_index,
            "budget": self.budget,
            "privacy": [claim_of(charge) for charge in self.privacy],
            "members": [asdict(member) for member in self.members],
        }
        return json.dumps(document, sort_keys=True, allow_nan=False)
