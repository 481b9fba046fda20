"""The audit log as a chain: every entry seals the one before it, so none can be changed, removed or slipped in unseen.

The head, kept apart, seals the last: cutting entries off the end shows too. Whoever can write to the database could
make the whole chain anew; a head that was written down elsewhere would show that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.trust.domain.records import AuditEntry

GENESIS = hashlib.sha256(b"coterie audit 1").hexdigest()
"""What the first entry's hash covers in the place of a previous one."""
MOST_FAULTS = 100


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The end of the chain: how many entries there are, the last one's number and hash."""

    entries: int
    number: int
    hash: str


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What a check found; `faults` says what is wrong, at most so many."""

    entries: int
    head: str
    faults: list[str]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def hash_entry(previous: str, entry: AuditEntry) -> str:
    """The entry's hash, hexadecimal. JSON keeps each text apart from its neighbours."""
    told = [
        entry.number,
        entry.at,
        entry.role,
        entry.subject,
        entry.act,
        entry.object,
        entry.request_id,
        entry.note,
    ]
    return hashlib.sha256(f"{previous}\n{json.dumps(told)}".encode()).hexdigest()


@dataclass(slots=True)
class AuditCheck:
    """A check under way: `take` the entries in order, then ask for the `verdict`."""

    entries: int = 0
    number: int = 0
    head: str = GENESIS
    faults: list[str] = field(default_factory=list)

    def take(self, batch: Iterable[tuple[AuditEntry, str]]) -> None:
        """Entries that follow, each with its stored hash."""
        for entry, stored in batch:
            if hash_entry(self.head, entry) != stored and len(self.faults) < MOST_FAULTS:
                self.faults.append(
                    f"entry {entry.number}: its hash does not follow from entry {self.number}: it was changed, or one "
                    "between them removed or added"
                )
            self.entries, self.number, self.head = self.entries + 1, entry.number, stored

    def verdict(self, head: AuditHead) -> AuditVerdict:
        """What was found, against the head that was kept apart."""
        for what, retained, result in (
            ("entries", head.entries, self.entries),
            ("last entry", head.number, self.number),
            ("head", head.hash, self.head),
        ):
            if retained != result:
                self.faults.append(f"{what}: the log's head says {retained}, there is {result}")
        return AuditVerdict(self.entries, self.head, self.faults)
