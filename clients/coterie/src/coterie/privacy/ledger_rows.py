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


def prepare(database: sqlite3.Connection) -> None:
    """Makes the tables, and the running totals anew where they are of another format."""
    for statement in _SCHEMA.split(";")[:-1]:
        database.execute(statement)
    if _setting(database, "orders") != _FORMAT:
        store(database, recomputed(database))
        _set(database, "orders", _FORMAT)


def may_be_raw(database: sqlite3.Connection, charge: Charge, consented: bool) -> bool:
    """Whether a raw release is allowed by its task's word: the owner has set no limit."""
    return charge.mechanism == "raw" and consented and not is_owners(database)


def named(database: sqlite3.Connection, charge: Charge) -> Charge:
    """The charge under the name its bytes have, or the first that is free."""
    if not charge.digest:
        return charge
    purpose = charge.purpose
    for number in itertools.count(2):
        known = find(database, charge)
        if known is None or charge_of(known).digest == charge.digest:
            return charge
        charge = dataclasses.replace(charge, purpose=f"{purpose}#{number}")
    raise AssertionError  # counting does not end


def settle(database: sqlite3.Connection, charge: Charge, known: str, state: State) -> None:
    """Heeds a charge that stands in the ledger already; raises `ChargeConflict` where it is another."""
    before = charge_of(known)
    if not charge.digest and _cost(before) != _cost(charge):
        raise ChargeConflict(
            f"{charge.purpose} of task {charge.task} round {charge.round} was already charged as {before}; "
            "a second release on the same data needs a purpose of its own"
        )
    if state == "spent":
        database.execute("UPDATE charges SET state = 'spent' WHERE task = ? AND round = ? AND purpose = ?", key(charge))


def key(charge: Charge) -> tuple[str, int, str]:
    """By what a charge is known."""
    return charge.task, charge.round, charge.purpose


def body(charge: Charge) -> str:
    """A charge as text."""
    # repr-exact floats: what is read back equals what was charged.
    return json.dumps(dataclasses.asdict(charge), sort_keys=True)


def charge_of(body: str) -> Charge:
    """A charge from its text."""
    return Charge(**json.loads(body))


def _cost(charge: Charge) -> tuple[object, ...]:
    """What a charge costs, however its Gaussian noise was named."""
    multiplier = charge.multiplier if charge.mechanism == "sampled-gaussian" else 0.0
    return dataclasses.astuple(dataclasses.replace(charge, multiplier=multiplier))


def find(database: sqlite3.Connection, charge: Charge) -> str | None:
    """The text of a charge that stands in the ledger."""
    row = database.execute(
        "SELECT body FROM charges WHERE task = ? AND round = ? AND purpose = ?", key(charge)
    ).fetchone()
    return None if row is None else str(row[0])


def entries(database: sqlite3.Connection, task: str | None = None, round: int | None = None) -> Iterator[Entry]:
    """Charges, oldest first."""
    wanted = {"task": task, "round": round}
    given = [name for name, value in wanted.items() if value is not None]
    where = " AND ".join(f"{name} = :{name}" for name in given) or "1"
    rows = database.execute(f"SELECT body, state, charged_at FROM charges WHERE {where} ORDER BY number", wanted)
    for body, state, charged_at in rows:
        yield Entry(charge_of(body), state, charged_at)


def recomputed(database: sqlite3.Connection) -> Running:
    """Everything charged so far, from the history."""
    running = EMPTY
    for entry in entries(database):
        running = running.plus(entry.charge)
    return running


def running(database: sqlite3.Connection) -> Running:
    """Everything charged so far, as it is kept."""
    rows = database.execute("SELECT unit, adjacency, gaussian_rho, orders, pure, delta FROM losses")
    losses = {
        Question(unit, adjacency): Loss(rho, np.frombuffer(orders, dtype="<f8"), pure, delta)
        for unit, adjacency, rho, orders, pure, delta in rows
    }
    releases, raw = database.execute("SELECT releases, raw FROM counts").fetchone()
    return Running(losses, releases, raw)


def store(database: sqlite3.Connection, running: Running) -> None:
    """Keeps what is charged so far."""
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


def limit(database: sqlite3.Connection) -> Limit:
    """The limit in the file."""
    return Limit(**json.loads(_setting(database, "limit") or "{}"))


def begin_limit(database: sqlite3.Connection) -> None:
    """Keeps the default limit where there is none."""
    if _setting(database, "limit") is None:
        _set(database, "limit", json.dumps(dataclasses.asdict(DEFAULT_LIMIT)))


def keep_limit(database: sqlite3.Connection, limit: Limit) -> None:
    """Keeps a limit that the owner sets."""
    _set(database, "limit", json.dumps(dataclasses.asdict(limit)))
    _set(database, "limit_by", "owner")


def is_owners(database: sqlite3.Connection) -> bool:
    """Whether the limit is the owner's word."""
    return _setting(database, "limit_by") == "owner"


def _setting(database: sqlite3.Connection, name: str) -> str | None:
    row = database.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _set(database: sqlite3.Connection, name: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))
