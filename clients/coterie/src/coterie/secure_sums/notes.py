"""A device's records about sums, stored in the ledger's file and in the transaction of the charge.

For each task: the last (round, session_number) that it prepared, and its terms. An earlier place is never repeated, and
a place has one set of terms. Without noise also the terms of each model, because the platform could subtract two sums
over different sets.
"""

from __future__ import annotations

import sqlite3

from coterie.secure_sums.acceptance import TermsRefused
from coterie.secure_sums.terms import Terms

SCHEMA = """
CREATE TABLE IF NOT EXISTS sum_places (
    task TEXT PRIMARY KEY, round INTEGER NOT NULL, session_number INTEGER NOT NULL, terms BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sum_models (
    task TEXT NOT NULL, model TEXT NOT NULL, terms BLOB NOT NULL, PRIMARY KEY (task, model));
CREATE TABLE IF NOT EXISTS sum_prices (purpose TEXT PRIMARY KEY, rho_alone REAL NOT NULL);
"""


def prepare(database: sqlite3.Connection) -> None:
    """Create missing tables."""
    for statement in SCHEMA.split(";")[:-1]:
        database.execute(statement)


def note(database: sqlite3.Connection, terms: Terms) -> bool:
    """Record the place in the caller's transaction; return True if these terms were recorded before.

    Raises `TermsRefused` for an earlier place, for other terms of the same place, and without noise for a second sum of
    one model.
    """
    row = database.execute(
        "SELECT round, session_number, terms FROM sum_places WHERE task = ?", (terms.task,)
    ).fetchone()
    if row is not None:
        if row[2] == terms.digest:
            return True
        if (terms.round, terms.session_number) <= (row[0], row[1]):
            raise TermsRefused(
                f"this device has already prepared round {row[0]}, session {row[1]} of the task under other terms; "
                "it does not repeat an earlier session"
            )
    if terms.noise == 0.0:
        _note_model(database, terms)
    database.execute(
        "INSERT OR REPLACE INTO sum_places VALUES (?, ?, ?, ?)",
        (terms.task, terms.round, terms.session_number, terms.digest),
    )
    return False


def keep_alone(database: sqlite3.Connection, purpose: str, rho: float) -> None:
    """Store the ρ of a sum if t clerks and the platform collude, beside its charge."""
    database.execute("INSERT OR IGNORE INTO sum_prices VALUES (?, ?)", (purpose, rho))


def alone(database: sqlite3.Connection) -> tuple[int, float]:
    """Return the number of sums with noise, and their total ρ by this device's own noise alone."""
    count, rho = database.execute("SELECT COUNT(*), COALESCE(SUM(rho_alone), 0.0) FROM sum_prices").fetchone()
    return int(count), float(rho)


def _note_model(database: sqlite3.Connection, terms: Terms) -> None:
    try:
        database.execute("INSERT INTO sum_models VALUES (?, ?, ?)", (terms.task, terms.model, terms.digest))
    except sqlite3.IntegrityError as error:
        raise TermsRefused(
            "without noise this device adds only one update of a model to a sum, because two sums over different sets "
            "could be subtracted; ask the publisher for a task with noise"
        ) from error
