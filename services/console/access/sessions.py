"""Sessions: kept in memory only, found by a random cookie, ended by time or by sign-out.

API keys never leave this process. A restart of the console ends every session.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class Person:
    """Principal of an API key, as the gateway reports it."""

    role: str
    subject: str
    name: str
    owner_id: str
    key_id: str
    link_id: str = ""
    """Link of the browser, if its owner linked it on the device."""


@dataclass(slots=True)
class Session:
    """One sign-in of one browser."""

    person: Person
    api_key: str = field(repr=False)
    began_at: float
    used_at: float
    ended: str = ""
    """Reason for the end, shown to the user; empty while the session is live."""


class Sessions:
    """All sessions, by the SHA-256 of their cookies: a memory dump reveals no cookie."""

    def __init__(
        self, *, idle_seconds: float, session_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle, self._longest, self._monotonic = idle_seconds, session_seconds, monotonic
        self._sessions: dict[bytes, Session] = {}

    def begin(self, person: Person, api_key: str) -> str:
        """Start a session and return the value of its cookie."""
        self._sweep()
        cookie = secrets.token_urlsafe(32)
        now = self._monotonic()
        self._sessions[_hash(cookie)] = Session(person, api_key, now, now)
        return cookie

    def find(self, cookie: str) -> Session | None:
        """Return the live session of a cookie, if there is one."""
        session = self._sessions.get(_hash(cookie))
        return session if session is not None and self.is_live(session) else None

    def is_live(self, session: Session) -> bool:
        """Return whether a session is live; end it when its time is over."""
        if not session.ended:
            now = self._monotonic()
            if now - session.used_at > self._idle:
                self.end(session, "You were signed out after a period of inactivity.")
            elif now - session.began_at > self._longest:
                self.end(session, "You were signed out because the session reached its maximum length.")
        return not session.ended

    def touch(self, session: Session) -> None:
        """Restart the idle time after an action of the user; automatic refreshes do not count."""
        session.used_at = self._monotonic()

    def end(self, session: Session, why: str = "You are signed out.") -> None:
        """End a session and forget its API key."""
        session.ended, session.api_key = session.ended or why, ""
        self._sessions = {key: item for key, item in self._sessions.items() if item is not session}

    def _sweep(self) -> None:
        for session in list(self._sessions.values()):
            self.is_live(session)
        while len(self._sessions) >= MOST_SESSIONS:
            oldest = min(self._sessions.values(), key=lambda item: item.used_at)
            self.end(oldest, "You were signed out because the console has too many sessions.")


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()


class SignInLimiter:
    """Limit of sign-in attempts per address and minute."""

    def __init__(self, most: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most, self._monotonic = most, monotonic
        self._attempts: dict[str, list[float]] = {}

    def allow(self, address: str) -> bool:
        """Count an attempt and return whether the address may make it."""
        now = self._monotonic()
        if len(self._attempts) > MOST_SESSIONS:
            self._attempts = {entry: times for entry, times in self._attempts.items() if times[-1] > now - 60.0}
        times = [item for item in self._attempts.get(address, ()) if item > now - 60.0]
        if len(times) >= self._most:
            return False
        self._attempts[address] = [*times, now]
        return True
