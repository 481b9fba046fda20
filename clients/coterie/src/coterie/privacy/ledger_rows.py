"""The rows of a privacy ledger: charges, running totals and settings, within the caller's transaction."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import sqlite3
from collections.abc import Iterator

import numpy as np

from coterie.privacy import renyi
from coterie.privacy.accounting import Charge, Loss, Question
from coterie.privacy.spending import DEFAULT_LIMIT, EMPTY, ChargeConflict, Entry, Limit, Running, State

_FORMAT = hashlib.sha256(b"3" + renyi.ORDERS.tobytes()).hexdigest()
"""Format of the running totals; a ledger of another format recomputes them from its history."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS charges (
    number INTEGER PRIMARY KEY, task TEXT NOT NULL, round INTEGER NOT NULL, purpose TEXT NOT NULL,
    body TEXT NOT NULL, state TEXT NOT NULL, charged_at REAL NOT NULL, UNIQUE (task, round, purpose));
CREATE TABLE IF NOT EXISTS losses (
    unit TEXT NOT NULL, adjacency TEXT NOT NULL, gaussian_rho REAL NOT NULL, orders BLOB NOT NULL, pure REAL NOT NULL,
    PRIMARY KEY (unit, adjacency));
CREATE TABLE IF NOT EXISTS counts (
    only INTEGER PRIMARY KEY CHECK (only = 1), releases INTEGER NOT NULL, raw INTEGER NOT NULL);
"""


def prepare(database: sqlite3.Connection) -> None:
    """Create the tables; recompute the running totals if they have another format."""
    for statement in _SCHEMA.split(";")[:-1]:
        database.execute(statement)
    if _setting(database, "orders") != _FORMAT:
        store(database, recomputed(database))
        _set(database, "orders", _FORMAT)


def may_be_raw(database: sqlite3.Connection, charge: Charge, consented: bool) -> bool:
    """Whether joining the task consented to a raw release and the owner has set no limit that overrides it."""
    return charge.mechanism == "raw" and consented and not is_owners(database)


def named(database: sqlite3.Connection, charge: Charge) -> Charge:
    """Return the charge under the name its bytes already have, or else under the first free name."""
    if not charge.digest:
        return charge
    purpose = charge.purpose
    for number in itertools.count(2):
        known = find(database, charge)
        if known is None or charge_of(known).digest == charge.digest:
            return charge
        charge = dataclasses.replace(charge, purpose=f"{purpose}#{number}")
    raise AssertionError  # itertools.count is infinite


def settle(database: sqlite3.Connection, charge: Charge, known: str, state: State) -> None:
    """Make a recorded charge final where `state` says so; raise `ChargeConflict` if its cost differs."""
    before = charge_of(known)
    if not charge.digest and _cost(before) != _cost(charge):
        raise ChargeConflict(
            f"{charge.purpose} of task {charge.task} round {charge.round} was already charged as {before}; "
            "give a second release on the same data another purpose"
        )
    if state == "spent":
        database.execute("UPDATE charges SET state = 'spent' WHERE task = ? AND round = ? AND purpose = ?", key(charge))


def key(charge: Charge) -> tuple[str, int, str]:
    """The columns that identify a charge."""
    return charge.task, charge.round, charge.purpose


def body(charge: Charge) -> str:
    """Serialise a charge; floats are exact, so that reading returns an equal charge."""
    return json.dumps(dataclasses.asdict(charge), sort_keys=True)


def charge_of(body: str) -> Charge:
    """Parse a charge."""
    return Charge(**json.loads(body))


def _cost(charge: Charge) -> tuple[object, ...]:
    """Fields that decide the cost: a Gaussian charge costs its ρ, with or without a multiplier."""
    return dataclasses.astuple(dataclasses.replace(charge, multiplier=0.0))


def find(database: sqlite3.Connection, charge: Charge) -> str | None:
    """Return the text of the recorded charge with this name, if any."""
    row = database.execute(
        "SELECT body FROM charges WHERE task = ? AND round = ? AND purpose = ?", key(charge)
    ).fetchone()
    return None if row is None else str(row[0])


def entries(database: sqlite3.Connection, task: str | None = None, round: int | None = None) -> Iterator[Entry]:
    """Yield charges, oldest first."""
    wanted = {"task": task, "round": round}
    given = [name for name, value in wanted.items() if value is not None]
    where = " AND ".join(f"{name} = :{name}" for name in given) or "1"
    rows = database.execute(f"SELECT body, state, charged_at FROM charges WHERE {where} ORDER BY number", wanted)
    for body, state, charged_at in rows:
        yield Entry(charge_of(body), state, charged_at)


def recomputed(database: sqlite3.Connection) -> Running:
    """Compose the whole history."""
    running = EMPTY
    for entry in entries(database):
        running = running.plus(entry.charge)
    return running


def running(database: sqlite3.Connection) -> Running:
    """Load the running totals."""
    rows = database.execute("SELECT unit, adjacency, gaussian_rho, orders, pure FROM losses")
    losses = {
        Question(unit, adjacency): Loss(rho, np.frombuffer(orders, dtype="<f8"), pure)
        for unit, adjacency, rho, orders, pure in rows
    }
    releases, raw = database.execute("SELECT releases, raw FROM counts").fetchone()
    return Running(losses, releases, raw)


def store(database: sqlite3.Connection, running: Running) -> None:
    """Store the running totals."""
    for question, loss in running.losses.items():
        database.execute(
            "INSERT OR REPLACE INTO losses VALUES (?, ?, ?, ?, ?)",
            (question.unit, question.adjacency, loss.gaussian_rho, loss.orders.astype("<f8").tobytes(), loss.pure),
        )
    database.execute("INSERT OR REPLACE INTO counts VALUES (1, ?, ?)", (running.releases, running.raw))


def limit(database: sqlite3.Connection) -> Limit:
    """Load the limit."""
    return Limit(**json.loads(_setting(database, "limit") or "{}"))


def begin_limit(database: sqlite3.Connection) -> None:
    """Store the default limit if the file has none."""
    if _setting(database, "limit") is None:
        _set(database, "limit", json.dumps(dataclasses.asdict(DEFAULT_LIMIT)))


def keep_limit(database: sqlite3.Connection, limit: Limit) -> None:
    """Store a limit that the owner sets."""
    _set(database, "limit", json.dumps(dataclasses.asdict(limit)))
    _set(database, "limit_by", "owner")


def is_owners(database: sqlite3.Connection) -> bool:
    """Whether the owner set the limit."""
    return _setting(database, "limit_by") == "owner"


def _setting(database: sqlite3.Connection, name: str) -> str | None:
    row = database.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _set(database: sqlite3.Connection, name: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))
