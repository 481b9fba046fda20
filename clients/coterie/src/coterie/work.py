"""What a device is asked to do in a round, and what it hands back."""

from __future__ import annotations

import base64
import hashlib
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
class Peer:
    """Somebody a device exchanges letters with in a round."""

    device_id: str
    role: str
    signing_key: bytes
    sealing_key: bytes
    weight: float
    trusted: bool
    link_seconds: float

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Peer:
        """A peer as REST describes it: keys are base64."""
        fields = {name: given[name] for name in cls.__slots__}
        for name in ("signing_key", "sealing_key"):
            fields[name] = base64.b64decode(given[name])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One round's work; the fields mean what `WorkItem` of the aggregation protocol says."""

    task_id: str
    round: int
    attempt: int
    role: str
    model_digests: tuple[str, ...]
    model_lines: tuple[int, ...]
    previous_digests: tuple[str, ...]
    deadline_at: float
    plan_version: int
    noise_multiplier: float
    noised: bool
    batch_size: int
    self_weight: float
    peers: tuple[Peer, ...]
    price_microcredits: int
    external_risk: float
    base_microcredits: int
    slope_microcredits: int
    training: Mapping[str, Any]
    parameters: Mapping[str, Any]
    privacy_unit: str
    topology: str
    privacy: str
    incentive: str
    max_update_bytes: int
    rounds: int

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> WorkItem:
        """A work item as REST describes it; fields this version does not know are ignored."""
        fields = {name: given[name] for name in cls.__slots__}
        for name in ("model_digests", "model_lines", "previous_digests"):
            fields[name] = tuple(fields[name])
        fields["peers"] = tuple(Peer.from_json(peer) for peer in given["peers"])
        return cls(**fields)

    @property
    def basis(self) -> str:
        """What an update is made from; the same basis gives the same update, so it may be sent again."""
        parts = [
            self.role,
            self.plan_version if self.peers else 0,  # letters are bound to their plan
            self.model_digests,
            self.noise_multiplier,
            self.noised,
            self.batch_size,
            self.self_weight,
            [(peer.device_id, peer.weight, peer.trusted) for peer in self.peers],
            self.price_microcredits,
            self.base_microcredits,
            self.slope_microcredits,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Work:
    """The platform's answer to "what next?": items, when to ask again, and which tasks have ended, with their state."""

    items: tuple[WorkItem, ...]
    retry_after_seconds: float
    ended: Mapping[str, str]

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Work:
        """As REST describes it."""
        items = tuple(WorkItem.from_json(item) for item in given["items"])
        return cls(items, float(given["retry_after_seconds"]), dict(given["ended"]))


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
