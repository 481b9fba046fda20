"""The device's own record of every release, across tasks and restarts, and the limit that no release may cross.

A device charges a release *before* it sends it. The ledger is one SQLite file of mode 0600; a call returns when the
file is on disk, and a crash at any moment leaves a charge complete or absent. A running `Loss` beside the history keeps
the time of a charge independent of the number of releases.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from coterie.privacy import ledger_rows as rows
from coterie.privacy.accounting import Charge, Question, gaussian_charge
from coterie.privacy.files import create_private_file, refuse_wide_permissions, transaction, write_private_file
from coterie.privacy.spending import (
    DEFAULT_LIMIT,
    BudgetExceeded,
    ChargeConflict,
    Entry,
    LedgerError,
    LedgerUnavailable,
    LedgerUnreadable,
    Limit,
    Receipt,
    Running,
    Spent,
    State,
    refuse,
)

__all__ = [
    "DEFAULT_LIMIT",
    "Beside",
    "BudgetExceeded",
    "ChargeConflict",
    "Entry",
    "LedgerError",
    "LedgerUnavailable",
    "LedgerUnreadable",
    "Limit",
    "PrivacyLedger",
    "Receipt",
    "Spent",
]

Beside: TypeAlias = Callable[[sqlite3.Connection], object]
"""Writes rows in the transaction of a charge."""


class PrivacyLedger:
    """A device's privacy account in one file; safe for use by several threads and processes.

    Charging the same bytes again is free, because sending them twice reveals nothing new. Other bytes under the same
    name are another release, charged under a numbered name: "update#2". A charge without a digest is identified by its
    name alone: the caller guarantees that there is one release of that name.
    """

    def __init__(self, path: Path, limit: Limit | None = None, clock: Callable[[], float] = time.time) -> None:
        """Open or create the ledger; `limit` replaces the limit in the file, which is `DEFAULT_LIMIT` at first."""
        self._path, self._clock = path, clock
        if not create_private_file(path):
            refuse_wide_permissions(path)
        with self._transaction() as database:
            rows.prepare(database)
            if limit is not None:
                rows.keep_limit(database, limit)
            else:
                rows.begin_limit(database)

    @property
    def limit(self) -> Limit:
        """The limit in the file."""
        with self._transaction() as database:
            return rows.limit(database)

    @property
    def is_owners(self) -> bool:
        """Whether the owner set the limit, which is not so for the default."""
        with self._transaction() as database:
            return rows.is_owners(database)

    def set_limit(self, limit: Limit) -> None:
        """Replace the limit; below the ε already spent it refuses every further release."""
        with self._transaction() as database:
            rows.keep_limit(database, limit)

    def spent(self) -> Spent:
        """Return what has been spent and reserved."""
        with self._transaction() as database:
            return rows.running(database).spent(rows.limit(database))

    def epsilons(self) -> dict[Question, float]:
        """Return ε spent and reserved at the limit's δ for every question; raw releases do not count."""
        with self._transaction() as database:
            delta = rows.limit(database).delta
            return {question: loss.epsilon(delta) for question, loss in rows.running(database).losses.items()}

    @property
    def unknown(self) -> int:
        """Number of releases missing from this ledger because it was restored from an older backup.

        A count file beside the ledger reveals them; if that file was restored too, they stay unknown.
        """
        with self._transaction() as database:
            return self._missing(rows.running(database))

    def preview(self, charges: Iterable[Charge]) -> Spent:
        """Return what would be spent after these charges; write and refuse nothing."""
        with self._transaction() as database:
            running = rows.running(database)
            for charge in charges:
                if rows.find(database, charge) is None:
                    running = running.plus(charge)
            return running.spent(rows.limit(database))

    def rounds_within(self, multiplier: float, rounds: int) -> int:
        """Return how many of `rounds` further releases of a device's update with this noise the limit allows."""
        with self._transaction() as database:
            limit, running = rows.limit(database), rows.running(database)
        one = limit.question.loss(gaussian_charge("any", 0, "update", "device", multiplier))
        before = running.losses[limit.question]

        def fits(count: int) -> bool:
            after = dataclasses.replace(before, gaussian_rho=before.gaussian_rho + count * one.gaussian_rho)
            return after.epsilon(limit.delta) <= limit.epsilon

        least, most = 0, rounds
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if fits(middle) else (least, middle - 1)
        return least

    def check(self, charge: Charge, *, consented: bool = False) -> None:
        """Raise `BudgetExceeded` if one more such release would cross the limit; write nothing."""
        with self._transaction() as database:
            limit, before = rows.limit(database), rows.running(database)
            if rows.may_be_raw(database, charge, consented):
                return
            refuse(charge, before.spent(limit), before.plus(charge).spent(limit), limit)

    def charge(self, charge: Charge, *, consented: bool = False, beside: Beside | None = None) -> Receipt:
        """Charge a release; call this before sending it. Raise `BudgetExceeded` beyond the limit.

        `consented` permits a raw release where the owner has set no limit, because the owner joined a task of raw
        updates. `beside` writes in the same transaction.
        """
        return self._add(charge, "spent", consented, beside)

    def note(self, beside: Beside) -> None:
        """Write rows in a transaction of this file without a charge."""
        with self._transaction() as database:
            beside(database)

    def sums_alone(self) -> tuple[int, float]:
        """Return the number of noised secure sums, and their ρ if t clerks and the platform collude."""
        from coterie.secure_sums import notes

        with self._transaction() as database:
            notes.prepare(database)
            return notes.alone(database)

    def reserve(self, charge: Charge) -> Receipt:
        """Reserve a charge; it counts until `release`, and `charge` of the same release makes it final."""
        return self._add(charge, "reserved")

    def release(self, charge: Charge) -> bool:
        """Drop a reservation of an unsent release and return whether there was one; final charges stay."""
        with self._transaction() as database:
            done = database.execute(
                "DELETE FROM charges WHERE task = ? AND round = ? AND purpose = ? AND state = 'reserved'",
                rows.key(charge),
            )
            if done.rowcount:
                missing = self._missing(rows.running(database))
                # Recompute the totals: subtraction would leave rounding errors.
                fewer = rows.recomputed(database)
                rows.store(database, fewer)
                write_private_file(self._count, str(fewer.made + missing).encode(), replace=True)
            return bool(done.rowcount)

    def history(self, task: str | None = None, round: int | None = None) -> list[Entry]:
        """List all charges, those of one task, or those of one of its rounds, oldest first."""
        with self._transaction() as database:
            return list(rows.entries(database, task, round))

    def _add(self, charge: Charge, state: State, consented: bool = False, beside: Beside | None = None) -> Receipt:
        with self._transaction() as database:
            if beside is not None:
                beside(database)
            limit, before = rows.limit(database), rows.running(database)
            charge = rows.named(database, charge)
            known = rows.find(database, charge)
            if known is not None:
                rows.settle(database, charge, known, state)
                return Receipt(before.spent(limit), repeated=True, charge=rows.charge_of(known))
            after = before.plus(charge)
            if not rows.may_be_raw(database, charge, consented):
                refuse(charge, before.spent(limit), after.spent(limit), limit)
            database.execute(
                "INSERT INTO charges (task, round, purpose, body, state, charged_at) VALUES (?, ?, ?, ?, ?, ?)",
                (*rows.key(charge), rows.body(charge), state, self._clock()),
            )
            missing = self._missing(before)
            rows.store(database, after)
            receipt = Receipt(after.spent(limit), repeated=False, charge=charge)
        # After the charge: a crash in between leaves the count too low, which is harmless; too high reports a loss.
        if after.made + missing > self._counted():
            write_private_file(self._count, str(after.made + missing).encode(), replace=True)
        return receipt

    @property
    def _count(self) -> Path:
        return self._path.with_suffix(".count")

    def _counted(self) -> int:
        try:
            return int(self._count.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def _missing(self, running: Running) -> int:
        return max(0, self._counted() - running.made)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with transaction(self._path) as database:
                yield database
        except sqlite3.OperationalError as error:
            raise LedgerUnavailable(
                f"the privacy ledger {self._path} is not available ({error}), so nothing may be sent; "
                "check that the file exists and the disk has room, and try again"
            ) from error
        except sqlite3.DatabaseError as error:
            raise LedgerUnreadable(
                f"the privacy ledger {self._path} cannot be used ({error}); restore it from a backup: "
                "a new, empty one would forget what this device has already given away"
            ) from error
