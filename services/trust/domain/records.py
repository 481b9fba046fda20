"""The nouns of the registry: owners, devices, keys, tokens and audit entries, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coterie.records.enums import DecisionState, DeviceState, InteractionState

KEY_BYTES = 32
"""Length of an Ed25519 or X25519 public key."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A person or organisation; `number` is its key inside this service's tables."""

    number: int
    id: str
    name: str
    sharing: str
    created_at: float
    public: bool = False


@dataclass(frozen=True, slots=True)
class Location:
    """Metres east and north of the deployment's origin."""

    x_metres: float
    y_metres: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a device can do; zero or empty means unknown."""

    seconds_per_sample: float = 0.0
    link_class: str = ""
    seconds_per_megabyte: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """A device's description of itself."""

    name: str
    kind: str = ""
    brand: str = ""
    model: str = ""
    location: Location | None = None
    capabilities: Capabilities = Capabilities()


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """Ed25519 signing key and X25519 sealing key, 32 bytes each; empty for an imported device that never registered."""

    signing: bytes = b""
    sealing: bytes = b""


@dataclass(frozen=True, slots=True)
class Device:
    """A device; `number` is its key inside this service's tables and its index in the trust graph."""

    number: int
    id: str
    owner_id: str
    profile: Profile
    keys: PublicKeys
    state: DeviceState
    registered_at: float
    last_seen_at: float
    key_version: int
    token_id: str


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as stored: the SHA-256 of its secret and its holder."""

    id: str
    digest: bytes
    role: str
    subject: str
    name: str
    owner_id: str
    created_at: float
    revoked_at: float | None
    expires_at: float | None = None
    link_id: str = ""
    """Link of the browser that holds it."""

    def works(self, now: float) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Token:
    """An enrolment token as stored."""

    id: str
    digest: bytes
    owner_number: int
    owner_id: str
    uses_left: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class Link:
    """A link between a device and a browser of its owner; `claimed_at` is 0 until a browser takes it."""

    id: str
    device_id: str
    token_digest: bytes
    created_at: float
    expires_at: float
    claimed_at: float = 0.0
    name: str = ""
    browser_key: bytes = b""
    proof: bytes = b""
    signed_in_milliseconds: int = 0
    note: bytes = b""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision that an owner's browser signed for a device, and its state."""

    id: str
    device_id: str
    link_id: str
    at: float
    text: str
    signature: bytes
    state: DecisionState = DecisionState.WAITING
    note: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit log."""

    number: int
    at: float
    role: str
    subject: str
    act: str
    object: str
    request_id: str
    note: str


class Basis(StrEnum):
    """Why a report may count as evidence."""

    PLATFORM = "platform"
    """The platform witnessed it."""
    ADMIN = "admin"
    """An admin imported it."""
    ONE = "one"
    """One end reports a bad interaction."""
    BOTH = "both"
    """Both ends report a good one; the earlier report carries the meeting."""
    HALF = "half"
    """The other report of such a meeting."""
    WAITING = "waiting"
    """One end reports a good one; it does not count until the other end does too."""


@dataclass(frozen=True, slots=True)
class RecordedInteraction:
    """An interaction as stored; devices by number, low first; reporter 0 is the platform or an admin."""

    number: int
    reporter: int
    id: str
    low: int
    high: int
    positive: bool
    duration_seconds: float
    at: float
    kind: str
    note: str
    basis: str
    share: float

    def state(self, now: float, confirm_seconds: float) -> InteractionState:
        """Whether it counts."""
        if self.basis == Basis.WAITING:
            expired = now > self.at + confirm_seconds
            return InteractionState.EXPIRED if expired else InteractionState.UNCONFIRMED
        counts = self.share > 0 or self.basis == Basis.HALF
        return InteractionState.COUNTED if counts else InteractionState.SURPLUS


@dataclass(frozen=True, slots=True)
class SocialRelation:
    """A relation of two devices, by number, and its reason."""

    kind: str
    a: int
    b: int
    strength: float
    because: str
    since: float


@dataclass(frozen=True, slots=True)
class Friendship:
    """Two owners, by number, low first, and how close each says they are, in [0, 1]; 0 = not declared.

    `since` is when it last changed. It holds when both have declared it.
    """

    low: int
    high: int
    low_strength: float
    high_strength: float
    since: float

    @property
    def strength(self) -> float:
        """The weaker of both declarations; 0 while one is missing."""
        return min(self.low_strength, self.high_strength)

    @property
    def confirmed(self) -> bool:
        """Whether both owners declared it."""
        return self.strength > 0


@dataclass(frozen=True, slots=True)
class ImportState:
    """Progress of an import."""

    name: str
    owner_name: str
    synthetic: bool
    last_line: int = 0
    devices: int = 0
    interactions: int = 0
    relations: int = 0


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device to create if its name is unknown; an empty `owner_name` means the import's owner."""

    line: int
    profile: Profile
    owner_name: str


@dataclass(frozen=True, slots=True)
class RelationRow:
    """A relation of two devices, by name."""

    line: int
    kind: str
    a: str
    b: str
    strength: float
    because: str
    since: float
