"""The device's own record of every release, across tasks and restarts, and the limit nothing may cross.

A device charges a release *before* it sends anything. The ledger is one SQLite file of mode 0600 that is on disk when
a call returns; killed at any moment it holds a charge wholly or not at all. It keeps a running `Loss` beside the
history, so that a charge costs the same after ten rounds or ten million.

    LedgerError
    ├── BudgetExceeded      the release would cross the device's limit; nothing was written
    ├── ChargeConflict      the same task, round and purpose with another mechanism or amount
    ├── LedgerUnavailable   the file is locked, missing or cannot be written just now
    └── LedgerUnreadable    the file is damaged or is no ledger
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from coterie.privacy import renyi
from coterie.privacy.accounting import (
    NOTHING,
    QUESTIONS,
    Adjacency,
    Charge,
    Loss,
    Question,
    Unit,
    adjacency_meant,
    gaussian_charge,
)
from coterie.privacy.files import create_private_file, refuse_wide_permissions, write_private_file
from coterie.privacy.preconditions import check_delta, check_positive

State: TypeAlias = Literal["reserved", "spent"]
Beside: TypeAlias = Callable[[sqlite3.Connection], object]
"""Something written together with a charge."""

_FORMAT = hashlib.sha256(b"2" + renyi.ORDERS.tobytes()).hexdigest()
"""Of the running totals, which a ledger of another format makes anew from its history."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS charges (
    number INTEGER PRIMARY KEY, task TEXT NOT NULL, round INTEGER NOT NULL, purpose TEXT NOT NULL,
    body TEXT NOT NULL, state TEXT NOT NULL, charged_at REAL NOT NULL, UNIQUE (task, round, purpose));
CREATE TABLE IF NOT EXISTS losses (
    unit TEXT NOT NULL, adjacency TEXT NOT NULL, gaussian_rho REAL NOT NULL, orders BLOB NOT NULL, pure REAL NOT NULL,
    delta REAL NOT NULL, PRIMARY KEY (unit, adjacency));
CREATE TABLE IF NOT EXISTS counts (
    only INTEGER PRIMARY KEY CHECK (only = 1), releases INTEGER NOT NULL, raw INTEGER NOT NULL);
"""


class LedgerError(Exception):
    """Anything the ledger refuses."""


class ChargeConflict(LedgerError):
    """A release was already charged differently."""


class LedgerUnavailable(LedgerError):
    """The file cannot be read or written at the moment; nothing was charged."""


class LedgerUnreadable(LedgerError):
    """The file is not a ledger this version can read."""


class BudgetExceeded(LedgerError):
    """A release that would take the device beyond its own limit.

    Attributes:
        spent: ε spent and reserved so far.
        asked: ε there would be after the release; infinite when it gives no guarantee of the limit's unit.
        limit: the limit it would cross.
    """

    def __init__(self, charge: Charge, spent: float, asked: float, limit: Limit) -> None:
        self.charge, self.spent, self.asked, self.limit = charge, spent, asked, limit
        super().__init__(
            f"{charge.purpose} of task {charge.task} round {charge.round} would take this device from ε = {spent:.4g} "
            f"to ε = {asked:.4g}, beyond its limit of {limit.epsilon:.4g} ({limit.question}, δ = {limit.delta:g}); "
            "leave the task, ask for more noise, or raise the limit"
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """What the owner allows in total: ε at δ, for one example or the whole device, left out or replaced.

    Without an adjacency it is the usual one of the unit: a device left out, an example replaced. `allow_raw` permits
    releases without noise to devices the owner trusts. They are listed and counted but are no part of ε, which cannot
    describe them.
    """

    epsilon: float
    delta: float
    unit: Unit = "example"
    allow_raw: bool = False
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        check_positive("epsilon limit", self.epsilon)
        check_delta(self.delta)

    @property
    def question(self) -> Question:
        """What its ε is about."""
        return Question.of(self.unit, self.adjacency)


DEFAULT_LIMIT = Limit(epsilon=8.0, delta=1e-5)


@dataclass(frozen=True, slots=True)
class Spent:
    """ε spent and reserved at the limit's δ, for what the limit is about; how many releases, and how many more raw."""

    epsilon: float
    delta: float
    question: Question
    releases: int
    raw_releases: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a charge left behind: as it stands in the ledger; `repeated` when it stood there before."""

    spent: Spent
    repeated: bool
    charge: Charge


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history; `charged_at` is in seconds since 1970."""

    charge: Charge
    state: State
    charged_at: float


@dataclass(frozen=True, slots=True)
class _Running:
    """Everything charged so far: its loss for every question, how many releases it was, and how many raw ones."""

    losses: Mapping[Question, Loss]
    releases: int
    raw: int

    @property
    def made(self) -> int:
        """All of them."""
        return self.releases + self.raw

    def plus(self, charge: Charge) -> _Running:
        if charge.mechanism == "raw":
            return dataclasses.replace(self, raw=self.raw + 1)
        losses = {question: loss.plus(question.loss(charge)) for question, loss in self.losses.items()}
        return _Running(losses, self.releases + 1, self.raw)

    def spent(self, limit: Limit) -> Spent:
        epsilon = self.losses[limit.question].epsilon(limit.delta)
        return Spent(epsilon, limit.delta, limit.question, self.releases, self.raw)


_EMPTY = _Running(dict.fromkeys(QUESTIONS, NOTHING), 0, 0)


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
            _prepare(database)
            if limit is not None:
                _keep(database, limit)
            elif _setting(database, "limit") is None:
                _set(database, "limit", json.dumps(dataclasses.asdict(DEFAULT_LIMIT)))

    @property
    def limit(self) -> Limit:
        """The owner's limit as stored in the file."""
        with self._transaction() as database:
            return _limit(database)

    @property
    def is_owners(self) -> bool:
        """Whether the limit is the owner's word; the default is not."""
        with self._transaction() as database:
            return _is_owners(database)

    def set_limit(self, limit: Limit) -> None:
        """Replace the limit; a limit below what is spent refuses everything from now on."""
        with self._transaction() as database:
            _keep(database, limit)

    def spent(self) -> Spent:
        """What has been spent and reserved."""
        with self._transaction() as database:
            return _running(database).spent(_limit(database))

    def epsilons(self) -> dict[Question, float]:
        """ε spent and reserved at the limit's δ, for every question; raw releases are not part of it."""
        with self._transaction() as database:
            delta = _limit(database).delta
            return {question: loss.epsilon(delta) for question, loss in _running(database).losses.items()}

    @property
    def unknown(self) -> int:
        """Releases that are missing from this ledger: it was put back from a backup made before them.

        They are counted in a file beside it. Where that was put back too, nobody here can know.
        """
        with self._transaction() as database:
            return self._missing(_running(database))

    def preview(self, charges: Iterable[Charge]) -> Spent:
        """What would have been spent after these charges; nothing is written and nothing is refused."""
        with self._transaction() as database:
            running = _running(database)
            for charge in charges:
                if _find(database, charge) is None:
                    running = running.plus(charge)
            return running.spent(_limit(database))

    def rounds_within(self, multiplier: float, rounds: int) -> int:
        """How many of so many releases of a device's update, all with this noise, the limit allows from now on."""
        with self._transaction() as database:
            limit, running = _limit(database), _running(database)
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
            limit, before = _limit(database), _running(database)
            if _may_be_raw(database, charge, consented):
                return
            _refuse(charge, before.spent(limit), before.plus(charge).spent(limit), limit)

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
        from coterie.sums import notes  # the sums' own notes, kept in this file

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
                "DELETE FROM charges WHERE task = ? AND round = ? AND purpose = ? AND state = 'reserved'", _key(charge)
            )
            if done.rowcount:
                missing = self._missing(_running(database))
                # Sums are made anew rather than subtracted: subtraction would leave rounding behind.
                fewer = _recomputed(database)
                _store(database, fewer)
                write_private_file(self._count, str(fewer.made + missing).encode(), replace=True)
            return bool(done.rowcount)

    def history(self, task: str | None = None, round: int | None = None) -> list[Entry]:
        """All charges, or one task's, or those of one of its rounds, oldest first."""
        with self._transaction() as database:
            return list(_entries(database, task, round))

    def _add(self, charge: Charge, state: State, consented: bool = False, beside: Beside | None = None) -> Receipt:
        with self._transaction() as database:
            if beside is not None:
                beside(database)
            limit, before = _limit(database), _running(database)
            charge = _named(database, charge)
            known = _find(database, charge)
            if known is not None:
                _settle(database, charge, known, state)
                return Receipt(before.spent(limit), repeated=True, charge=_charge(known))
            after = before.plus(charge)
            if not _may_be_raw(database, charge, consented):
                _refuse(charge, before.spent(limit), after.spent(limit), limit)
            database.execute(
                "INSERT INTO charges (task, round, purpose, body, state, charged_at) VALUES (?, ?, ?, ?, ?, ?)",
                (*_key(charge), _body(charge), state, self._clock()),
            )
            missing = self._missing(before)
            _store(database, after)
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

    def _missing(self, running: _Running) -> int:
        return max(0, self._counted() - running.made)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # mode=rw: a ledger deleted under a running device is an error, not a new and empty ledger.
        address = self._path.absolute().as_uri() + "?mode=rw"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=30.0, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("BEGIN IMMEDIATE")
                try:
                    yield database
                except BaseException:
                    database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
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


def _prepare(database: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";")[:-1]:
        database.execute(statement)
    if _setting(database, "orders") != _FORMAT:
        database.execute("DROP TABLE IF EXISTS running")  # of version 0.1.0
        _store(database, _recomputed(database))
        _set(database, "orders", _FORMAT)


def _may_be_raw(database: sqlite3.Connection, charge: Charge, consented: bool) -> bool:
    return charge.mechanism == "raw" and consented and not _is_owners(database)


def _refuse(charge: Charge, before: Spent, after: Spent, limit: Limit) -> None:
    if charge.mechanism == "raw":
        if not limit.allow_raw:
            raise BudgetExceeded(charge, before.epsilon, math.inf, limit)
    elif after.epsilon > limit.epsilon:
        raise BudgetExceeded(charge, before.epsilon, after.epsilon, limit)


def _named(database: sqlite3.Connection, charge: Charge) -> Charge:
    """The charge under the name its bytes have, or the first that is free."""
    if not charge.digest:
        return charge
    purpose = charge.purpose
    for number in itertools.count(2):
        known = _find(database, charge)
        if known is None or _charge(known).digest == charge.digest:
            return charge
        charge = dataclasses.replace(charge, purpose=f"{purpose}#{number}")
    raise AssertionError  # counting does not end


def _settle(database: sqlite3.Connection, charge: Charge, known: str, state: State) -> None:
    before = _charge(known)
    if not charge.digest and _cost(before) != _cost(charge):
        raise ChargeConflict(
            f"{charge.purpose} of task {charge.task} round {charge.round} was already charged as {before}; "
            "a second release on the same data needs a purpose of its own"
        )
    if state == "spent":
        database.execute(
            "UPDATE charges SET state = 'spent' WHERE task = ? AND round = ? AND purpose = ?", _key(charge)
        )


def _key(charge: Charge) -> tuple[str, int, str]:
    return charge.task, charge.round, charge.purpose


def _body(charge: Charge) -> str:
    # repr-exact floats: what is read back equals what was charged.
    return json.dumps(dataclasses.asdict(charge), sort_keys=True)


def _charge(body: str) -> Charge:
    fields = json.loads(body)
    # Ledgers of version 0.1.0 do not say the adjacency.
    return Charge(**{"adjacency": adjacency_meant(fields["mechanism"], fields["unit"]), **fields})


def _cost(charge: Charge) -> tuple[object, ...]:
    """What a charge costs, however its Gaussian noise was named."""
    multiplier = charge.multiplier if charge.mechanism == "sampled-gaussian" else 0.0
    return dataclasses.astuple(dataclasses.replace(charge, multiplier=multiplier))


def _find(database: sqlite3.Connection, charge: Charge) -> str | None:
    row = database.execute(
        "SELECT body FROM charges WHERE task = ? AND round = ? AND purpose = ?", _key(charge)
    ).fetchone()
    return None if row is None else str(row[0])


def _entries(database: sqlite3.Connection, task: str | None = None, round: int | None = None) -> Iterator[Entry]:
    wanted = {"task": task, "round": round}
    given = [name for name, value in wanted.items() if value is not None]
    where = " AND ".join(f"{name} = :{name}" for name in given) or "1"
    rows = database.execute(f"SELECT body, state, charged_at FROM charges WHERE {where} ORDER BY number", wanted)
    for body, state, charged_at in rows:
        yield Entry(_charge(body), state, charged_at)


def _recomputed(database: sqlite3.Connection) -> _Running:
    running = _EMPTY
    for entry in _entries(database):
        running = running.plus(entry.charge)
    return running


def _running(database: sqlite3.Connection) -> _Running:
    rows = database.execute("SELECT unit, adjacency, gaussian_rho, orders, pure, delta FROM losses")
    losses = {
        Question(unit, adjacency): Loss(rho, np.frombuffer(orders, dtype="<f8"), pure, delta)
        for unit, adjacency, rho, orders, pure, delta in rows
    }
    releases, raw = database.execute("SELECT releases, raw FROM counts").fetchone()
    return _Running(losses, releases, raw)


def _store(database: sqlite3.Connection, running: _Running) -> None:
    for question, loss in running.losses.items():
        database.execute(
            "INSERT OR REPLACE INTO losses VALUES (?, ?, ?, ?, ?, ?)",
            (
                question.unit,
                question.adjacency,
                loss.gaussian_rho,
                loss.orders.astype("<f8").tobytes(),
                loss.pure,
                loss.delta,
            ),
        )
    database.execute("INSERT OR REPLACE INTO counts VALUES (1, ?, ?)", (running.releases, running.raw))


def _limit(database: sqlite3.Connection) -> Limit:
    return Limit(**json.loads(_setting(database, "limit") or "{}"))


def _keep(database: sqlite3.Connection, limit: Limit) -> None:
    _set(database, "limit", json.dumps(dataclasses.asdict(limit)))
    _set(database, "limit_by", "owner")


def _is_owners(database: sqlite3.Connection) -> bool:
    # Ledgers of version 0.1.0 do not say who set the limit: any but the default was the owner.
    return _setting(database, "limit_by") == "owner" or _limit(database) != DEFAULT_LIMIT


def _setting(database: sqlite3.Connection, name: str) -> str | None:
    row = database.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _set(database: sqlite3.Connection, name: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))
