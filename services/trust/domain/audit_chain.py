"""The audit log as a chain: the hash of each entry covers the one before, so any change, removal or insertion shows.

The head is stored separately and seals the last entry, so removing entries from the end shows too. Full write access to
the database allows rebuilding the whole chain; only a copy of a head stored elsewhere reveals that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.trust.domain.records import AuditEntry

GENESIS = hashlib.sha256(b"coterie audit 1").hexdigest()
"""The previous hash of the first entry."""
MOST_FAULTS = 100


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The end of the chain: the number of entries, the last one's number and hash."""

    entries: int
    number: int
    hash: str


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """Result of a check; `faults` lists the first faults."""

    entries: int
    head: str
    faults: list[str]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def hash_entry(previous: str, entry: AuditEntry) -> str:
    """Return the entry's hash, hexadecimal. JSON keeps texts apart."""
    fields = [
        entry.number,
        entry.at,
        entry.role,
        entry.subject,
        entry.act,
        entry.object,
        entry.request_id,
        entry.note,
    ]
    return hashlib.sha256(f"{previous}\n{json.dumps(fields)}".encode()).hexdigest()


@dataclass(slots=True)
class AuditCheck:
    """A running check: `take` the entries in order, then read the `verdict`."""

    entries: int = 0
    number: int = 0
    head: str = GENESIS
    faults: list[str] = field(default_factory=list)

    def take(self, batch: Iterable[tuple[AuditEntry, str]]) -> None:
        """Check the following entries, each with its stored hash."""
        for entry, stored in batch:
            if hash_entry(self.head, entry) != stored and len(self.faults) < MOST_FAULTS:
                self.faults.append(
                    f"entry {entry.number}: its hash does not follow from entry {self.number}; it was changed, or an "
                    "entry between them was removed or added"
                )
            self.entries, self.number, self.head = self.entries + 1, entry.number, stored

    def verdict(self, head: AuditHead) -> AuditVerdict:
        """Return the result, compared with the stored head."""
        for what, retained, result in (
            ("entries", head.entries, self.entries),
            ("last entry", head.number, self.number),
            ("head", head.hash, self.head),
        ):
            if retained != result:
                self.faults.append(f"{what}: the log's head records {retained}, the log has {result}")
        return AuditVerdict(self.entries, self.head, self.faults)
