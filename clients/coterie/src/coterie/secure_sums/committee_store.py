"""A clerk's SQLite file of mode 0600: session keys, commits to survivors, and marks of sessions that are over.

Every call is one synced transaction. After a crash a clerk signs the same again or nothing: a commit is on disk before
it is signed, and a mark is written in the transaction that deletes what it replaces. Seeds are never stored.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.privacy.files import create_private_file, refuse_wide_permissions, transaction
from coterie.secure_sums.terms import Place

DAY_SECONDS = 86_400.0
MOST_SECONDS = 8 * DAY_SECONDS
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    task TEXT NOT NULL, cohort INTEGER NOT NULL, round INTEGER NOT NULL, session_number INTEGER NOT NULL,
    session_key BLOB NOT NULL, forget_at REAL NOT NULL, PRIMARY KEY (task, cohort, round, session_number));
CREATE TABLE IF NOT EXISTS commits (
    task TEXT NOT NULL, cohort INTEGER NOT NULL, round INTEGER NOT NULL, session_number INTEGER NOT NULL,
    terms BLOB NOT NULL, survivors BLOB NOT NULL, PRIMARY KEY (task, cohort, round, session_number));
CREATE TABLE IF NOT EXISTS marks (
    task TEXT NOT NULL, cohort INTEGER NOT NULL, round INTEGER NOT NULL, session_number INTEGER NOT NULL,
    PRIMARY KEY (task, cohort));
"""
_AT = "task = ? AND cohort = ? AND round = ? AND session_number = ?"
_UP_TO = "task = ? AND cohort = ? AND (round < ? OR (round = ? AND session_number <= ?))"


class ClerkRefuses(Exception):
    """Base of the errors with which a clerk refuses a duty."""


class SessionOver(ClerkRefuses):
    """The session is over for this clerk, or it never offered a key for it."""


class ConflictingCommit(ClerkRefuses):
    """The clerk committed to other survivors, or other terms, in this session."""


class CommitteeStoreUnavailable(ClerkRefuses):
    """The file cannot be read or written, so nothing may be signed."""


class CommitteeStore:
    """A clerk's file; safe to use from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not create_private_file(path):
            refuse_wide_permissions(path)
        with self._transaction() as database:
            for statement in _SCHEMA.split(";")[:-1]:
                database.execute(statement)

    def open_session(self, place: Place, make: Callable[[], bytes], now: float, deadline_at: float) -> bytes:
        """Return the session key of a place, made and stored on the first call; forget all earlier places."""
        with self._transaction() as database:
            _refuse_marked(database, place)
            known = _session(database, place)
            if known is not None:
                return known
            _mark_and_delete(database, Place(place.task, place.cohort, place.round, place.session_number - 1))
            fresh = make()
            forget_at = min(deadline_at + DAY_SECONDS, now + MOST_SECONDS)
            database.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", (*_row(place), fresh, forget_at))
        return fresh

    def session(self, place: Place) -> bytes:
        """Return the live session key of a place; `SessionOver` if there is none."""
        with self._transaction() as database:
            _refuse_marked(database, place)
            known = _session(database, place)
        if known is None:
            raise SessionOver(f"this device offered no key for round {place.round}, session {place.session_number}")
        return known

    def commit(self, place: Place, terms: bytes, survivors: bytes) -> None:
        """Check that the place has no other commit and store (T, D), in one transaction."""
        with self._transaction() as database:
            _refuse_marked(database, place)
            if _session(database, place) is None:
                raise SessionOver(f"this device offered no key for round {place.round}, session {place.session_number}")
            known = _commit(database, place)
            if known is None:
                database.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?)", (*_row(place), terms, survivors))
            elif known != (terms, survivors):
                raise ConflictingCommit("this clerk has committed to other survivors in this session")

    def committed(self, place: Place) -> tuple[bytes, bytes] | None:
        """Return this clerk's commit (T, D) at a place; None without one, `SessionOver` once it is over."""
        with self._transaction() as database:
            _refuse_marked(database, place)
            return _commit(database, place)

    def forget(self, place: Place) -> None:
        """Mark all places up to this one as over and delete their rows; ignore places without a key offer."""
        with self._transaction() as database:
            if _session(database, place) is not None:
                _mark_and_delete(database, place)

    @property
    def is_empty(self) -> bool:
        """Whether no live session key is left, so that no sum depends on this clerk."""
        with self._transaction() as database:
            return database.execute("SELECT 1 FROM sessions LIMIT 1").fetchone() is None

    def due(self, now: float) -> list[Place]:
        """List places whose session keys have expired."""
        with self._transaction() as database:
            rows = database.execute(
                "SELECT task, cohort, round, session_number FROM sessions WHERE forget_at <= ? "
                "ORDER BY round, session_number",
                (now,),
            )
            return [Place(*row) for row in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with transaction(self._path, secure_delete=True) as database:
                yield database
        except sqlite3.DatabaseError as error:
            raise CommitteeStoreUnavailable(
                f"the clerk's file {self._path} is not available ({error}), so nothing is signed; check the disk, or "
                "move the file away: this device then serves new sessions only"
            ) from error


def _row(place: Place) -> tuple[str, int, int, int]:
    return place.task, place.cohort, place.round, place.session_number


def _session(database: sqlite3.Connection, place: Place) -> bytes | None:
    row = database.execute(f"SELECT session_key FROM sessions WHERE {_AT}", _row(place)).fetchone()
    return None if row is None else bytes(row[0])


def _commit(database: sqlite3.Connection, place: Place) -> tuple[bytes, bytes] | None:
    row = database.execute(f"SELECT terms, survivors FROM commits WHERE {_AT}", _row(place)).fetchone()
    return None if row is None else (bytes(row[0]), bytes(row[1]))


def _refuse_marked(database: sqlite3.Connection, place: Place) -> None:
    row = database.execute(
        "SELECT round, session_number FROM marks WHERE task = ? AND cohort = ?", (place.task, place.cohort)
    ).fetchone()
    if row is not None and (place.round, place.session_number) <= (row[0], row[1]):
        raise SessionOver(
            f"round {place.round}, session {place.session_number} is over for this clerk; its records are deleted"
        )


def _mark_and_delete(database: sqlite3.Connection, place: Place) -> None:
    """Raise the mark of the task and cohort to a place, never lower it, and delete everything up to it."""
    database.execute(
        "INSERT INTO marks VALUES (?, ?, ?, ?) ON CONFLICT (task, cohort) DO UPDATE SET round = excluded.round, "
        "session_number = excluded.session_number "
        "WHERE (excluded.round, excluded.session_number) > (marks.round, marks.session_number)",
        _row(place),
    )
    bounds = (place.task, place.cohort, place.round, place.round, place.session_number)
    for table in ("sessions", "commits"):
        database.execute(f"DELETE FROM {table} WHERE {_UP_TO}", bounds)
