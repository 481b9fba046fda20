"""Verification of the ledger: sums and hashes of all entries, and balances compared with postings.

Entries stream past; memory holds one sum per account.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from services.pricing.domain.ledger import GENESIS, MINT, Entry, Payment, attach, hash_entry

MOST_FAULTS = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a check; `faults` lists at most the first of them (see the check's limit)."""

    entries: int
    postings: int
    head: str
    faults: list[str]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


@dataclass(slots=True)
class LedgerCheck:
    """A running check: `take` the entries in order, `compare` the balances, then read the `verdict`."""

    entries: int = 0
    postings: int = 0
    head: str = GENESIS
    faults: list[str] = field(default_factory=list)
    _sums: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _at: float = 0.0

    def take(self, batch: Iterable[tuple[Entry, str, Sequence[Payment]]]) -> None:
        """Check the following entries, each with its stored hash and stored payments."""
        for entry, stored, payments in batch:
            self._take_one(entry, stored, payments)

    def _take_one(self, entry: Entry, stored: str, payments: Sequence[Payment]) -> None:
        if entry.number != self.entries + 1:
            self._fault(f"entry {entry.number} follows entry {self.entries}: {entry.number - self.entries - 1} missing")
        if entry.at < self._at:
            self._fault(f"entry {entry.number} is older than the one before it")
        if hash_entry(self.head, entry) != stored:
            self._fault(f"entry {entry.number} or one before it was changed: its hash does not match")
        total = 0
        for account_id, amount in entry.postings:
            self._sums[account_id] += amount
            total += amount
        if total:
            self._fault(f"the postings of entry {entry.number} sum to {total}, not to 0")
        if attach(payments) != entry.attachment:
            self._fault(f"the payments of entry {entry.number} are not those it was sealed with")
        self.entries, self.head, self._at = entry.number, stored, entry.at
        self.postings += len(entry.postings)

    def compare(self, balances: Iterable[tuple[str, int]]) -> None:
        """Compare stored balances with postings; each account once."""
        for account_id, balance in balances:
            added = self._sums.pop(account_id, 0)
            if added != balance:
                self._fault(f"account {account_id} shows {balance} but its postings sum to {added}")
            if added < 0 and account_id != MINT:
                self._fault(f"account {account_id} is overdrawn: its postings sum to {added}")

    def expect(self, what: str, recorded: object, counted: object) -> None:
        """Compare a count that the ledger records with the rows counted."""
        if recorded != counted:
            self._fault(f"{what}: the ledger records {recorded}, the check counts {counted}")

    def verdict(self) -> Verdict:
        """Return the result; accounts with postings but no balance are a fault too."""
        for account_id, added in self._sums.items():
            self._fault(f"account {account_id} has postings that sum to {added} but does not exist")
        return Verdict(self.entries, self.postings, self.head, self.faults)

    def _fault(self, text: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)
