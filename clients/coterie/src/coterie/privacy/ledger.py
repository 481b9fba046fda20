"""The device's own record of every release, across tasks and restarts, and the limit nothing may cross.

A device charges a release *before* it sends anything. The ledger is one SQLite file of mode 0600 that is on disk when
a call returns; killed at any moment it holds a charge wholly or not at all. It keeps a running `Loss` beside the
history, so that a charge costs the same after ten rounds or ten million.
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
"""Something written together with a charge."""


class PrivacyLedger:
    """A device's privacy account in one file; safe to use from several threads and processes at once.

    A repeated charge of the same bytes is free, because sent twice they tell nothing new. Other bytes under the same
    name are another release and charged as such, under the name with a number behind it: "update#2". A charge that
    names no bytes is bound by its name: whoever makes it answers for there being one release of that name.
    """

    def __init__(self, path: Path, limit: Limit | None = None, clock: Callable[[], float] = time.time) -> None:
        """Open or create the ledger; a limit given here replaces the one in the file (at first `DEFAULT_LIMIT`)."""
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
        """The owner's limit as stored in the file."""
        with self._transaction() as database:
            return rows.limit(database)

    @property
    def is_owners(self) -> bool:
        """Whether the limit is the owner's word; the default is not."""
        with self._transaction() as database:
            return rows.is_owners(database)

    def set_limit(self, limit: Limit) -> None:
        """Replace the limit; a limit below what is spent refuses everything from now on."""
        with self._transaction() as database:
            rows.keep_limit(database, limit)

    def spent(self) -> Spent:
        """What has been spent and reserved."""
        with self._transaction() as database:
            return rows.running(database).spent(rows.limit(database))

    def epsilons(self) -> dict[Question, float]:
        """ε spent and reserved at the limit's δ, for every question; raw releases are not part of it."""
        with self._transaction() as database:
            delta = rows.limit(database).delta
            return {question: loss.epsilon(delta) for question, loss in rows.running(database).losses.items()}

    @property
    def unknown(self) -> int:
        """Releases that are missing from this ledger: it was put back from a backup made before them.

        They are counted in a file beside it. Where that was put back too, nobody here can know.
        """
        with self._transaction() as database:
            return self._missing(rows.running(database))

    def preview(self, charges: Iterable[Charge]) -> Spent:
        """What would have been spent after these charges; nothing is written and nothing is refused."""
        with self._transaction() as database:
            running = rows.running(database)
            for charge in charges:
                if rows.find(database, charge) is None:
                    running = running.plus(charge)
            return running.spent(rows.limit(database))

    def rounds_within(self, multiplier: float, rounds: int) -> int:
        """How many of so many releases of a device's update, all with this noise, the limit allows from now on."""
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
        """Raise `BudgetExceeded` where one more such release would cross the limit; nothing is written."""
        with self._transaction() as database:
            limit, before = rows.limit(database), rows.running(database)
            if rows.may_be_raw(database, charge, consented):
                return
            refuse(charge, before.spent(limit), before.plus(charge).spent(limit), limit)

    def charge(self, charge: Charge, *, consented: bool = False, beside: Beside | None = None) -> Receipt:
        """Charge a release for good; call this before anything is sent. Raises `BudgetExceeded` beyond the limit.

        `consented` permits a raw release where the owner has set no limit: the task said that it would be raw.
        `beside` is done in the same transaction: both stand in the file, or neither.
        """
        return self._add(charge, "spent", consented, beside)

    def note(self, beside: Beside) -> None:
        """Does something in a transaction of this file, where there is nothing to charge."""
        with self._transaction() as database:
            beside(database)

    def sums_alone(self) -> tuple[int, float]:
        """Secure sums with noise so far, and their ρ if t clerks worked with the platform: by own noise alone."""
        from coterie.secure_sums import notes

        with self._transaction() as database:
            notes.prepare(database)
            return notes.alone(database)

    def reserve(self, charge: Charge) -> Receipt:
        """Set a charge aside; it counts until `release`, and `charge` of the same makes it final."""
        return self._add(charge, "reserved")

    def release(self, charge: Charge) -> bool:
        """Give back a reservation of which nothing was sent; False when there is none. Final charges stay."""
        with self._transaction() as database:
            done = database.execute(
                "DELETE FROM charges WHERE task = ? AND round = ? AND purpose = ? AND state = 'reserved'",
                rows.key(charge),
            )
            if done.rowcount:
                missing = self._missing(rows.running(database))
                # Sums are made anew rather than subtracted: subtraction would leave rounding behind.
                fewer = rows.recomputed(database)
                rows.store(database, fewer)
                write_private_file(self._count, str(fewer.made + missing).encode(), replace=True)
            return bool(done.rowcount)

    def history(self, task: str | None = None, round: int | None = None) -> list[Entry]:
        """All charges, or one task's, or those of one of its rounds, oldest first."""
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
        # After the charge: killed in between, the count is behind, which says nothing; ahead it would accuse.
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
                "check that the file is there, that the disk has room, and try again"
            ) from error
        except sqlite3.DatabaseError as error:
            raise LedgerUnreadable(
                f"the privacy ledger {self._path} cannot be used ({error}); restore it from a backup: "
                "a new, empty one would forget what this device has already given away"
            ) from error
