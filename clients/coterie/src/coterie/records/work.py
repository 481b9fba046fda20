"""Work, updates and letters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from coterie.records.base import Key, Object, Record
from coterie.records.enums import LetterKind, PrivacyUnit, Reception, Role, RoundState, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer(Record):
    """Another device that a device works with in a round."""

    device_id: str
    role: Role
    """"head", "member" or "peer"."""
    signing_key: Key
    """Ed25519 public key, base64."""
    sealing_key: Key
    """X25519 public key, base64."""
    weight: float
    """Weight its contribution is combined with."""
    trusted: bool
    """Whether raw parameters may be sent over this tie."""
    link_seconds: float
    """Planned seconds of one transfer; 0 = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem(Record):
    """What a device is to do."""

    task_id: str
    round: int
    attempt: int
    role: Role
    """"solo", "head", "member", "peer" or "idle"."""
    model_digests: tuple[str, ...]
    """Model to start from, per model line the device may choose from."""
    model_lines: tuple[int, ...]
    """Line number of each."""
    previous_digests: tuple[str, ...]
    """Digest of each model's previous version; empty in round 1."""
    deadline_at: float
    """When the round ends at the latest."""
    plan_version: int
    noise_multiplier: float
    """Of Gaussian noise; 0 = none."""
    noised: bool
    """Whether it adds Laplace noise (mesh)."""
    batch_size: int
    """0 = as in `training`."""
    self_weight: float
    """Own mixing weight (mesh), own quality (clusters), or the most weight of a masked update (secure sums)."""
    peers: tuple[Peer, ...]
    """Those it exchanges letters with."""
    price_microcredits: int
    """Per unit of zCDP budget; 0 = none."""
    external_risk: float
    """External risk α·R, as the platform quotes it."""
    base_microcredits: int
    """For taking part at all."""
    slope_microcredits: int
    """Deducted per unit of noise variance."""
    training: Object
    """What the task says about training."""
    parameters: Object
    """Parameters of the axes."""
    privacy_unit: PrivacyUnit
    """What noise protects: "example" or "device"."""
    topology: str
    privacy: str
    incentive: str
    max_update_bytes: int
    """Largest update taken."""
    rounds: int
    """Rounds in the task."""
    verdict: str = ""
    """What its head said of the device in the last round although its report came in time; it may object."""
    trust_weight: float = 1.0
    """How much its update may weigh where the task's rule asks for trust, from 0 to 1."""
    measure: int | None = None
    """Version of the model to measure, without training it; null = train."""
    sum: str | None = None
    """Terms of the secure sum the update goes into, as canonical text; null where updates are added in the clear."""
    cell: str = ""
    """Cell that serves the device (cells), for what it measures of its way there."""
    solo_weight: float = 0.0
    """What its update counts if it is the only one, noised as one alone does (clusters); 0 = `self_weight`."""

    @property
    def basis(self) -> str:
        """What an update is made from; the same basis gives the same update, so it may be sent again.

        In a secure sum it is the digest of the terms: other terms are always another update.
        """
        if self.sum:
            return hashlib.sha256(self.sum.encode()).hexdigest()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Record):
    """Work, or how long to wait before asking again."""

    items: tuple[WorkItem, ...]
    """At most one per task."""
    retry_after_seconds: float
    ended: Mapping[str, TaskState]
    """Tasks asked about that have ended, with their state."""
    duties: bool = False
    """Whether the device may have duties as a clerk of secure sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome(Record):
    """What became of an update."""

    outcome: Reception
    """"repeated": stored before; "late": the round was over, nothing changed."""
    round: int
    """Round the task is in now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter(Record):
    """A sealed letter."""

    id: str
    task_id: str
    round: int
    plan_version: int
    sender: str
    recipient: str
    kind: LetterKind
    """"update" (to a head), "parameters" (to a neighbour) or "receipt" (from a head)."""
    digest: str
    """SHA-256 of the ciphertext, hexadecimal."""
    size_bytes: int
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters(Record):
    """Letters not known yet, and whether more can come."""

    items: tuple[Letter, ...]
    round_state: RoundState
    """"open" while more can come."""
    gone: tuple[str, ...]
    """Devices that will send nothing more this round."""
