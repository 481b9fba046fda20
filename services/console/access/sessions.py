"""Who is signed in: sessions in memory alone, known to browsers by a random cookie, ended by time or by choice.

The API key stays here. A restart of the console ends every session; people sign in again.
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
    """Whom the key speaks for, as the gateway says."""

    role: str
    subject: str
    name: str
    owner_id: str
    key_id: str
    link_id: str = ""
    """Of a browser that its owner linked on the device."""


@dataclass(slots=True)
class Session:
    """One sign-in of one browser."""

    person: Person
    api_key: str = field(repr=False)
    began_at: float
    used_at: float
    ended: str = ""
    """Why it ended; empty while it is live."""


class Sessions:
    """Every session, by the SHA-256 of its cookie: what is in memory opens nothing."""

    def __init__(
        self, *, idle_seconds: float, session_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle, self._whole, self._monotonic = idle_seconds, session_seconds, monotonic
        self._known: dict[bytes, Session] = {}

    def begin(self, person: Person, api_key: str) -> str:
        """Starts a session; the cookie's value."""
        self._sweep()
        cookie = secrets.token_urlsafe(32)
        now = self._monotonic()
        self._known[_place(cookie)] = Session(person, api_key, now, now)
        return cookie

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie, if it is live."""
        session = self._known.get(_place(cookie))
        return session if session is not None and self.is_live(session) else None

    def is_live(self, session: Session) -> bool:
        """Whether a session is live; ends it when its time is over."""
        if not session.ended:
            now = self._monotonic()
            if now - session.used_at > self._idle:
                self.end(session, "You were signed out because nothing was done here for a while.")
            elif now - session.began_at > self._whole:
                self.end(session, "You were signed out because a session lasts so long.")
        return not session.ended

    def touch(self, session: Session) -> None:
        """Somebody did something: the idle time starts again. A page that refreshes itself is nobody."""
        session.used_at = self._monotonic()

    def end(self, session: Session, why: str = "You are signed out.") -> None:
        """Ends a session and forgets its key."""
        session.ended, session.api_key = session.ended or why, ""
        self._known = {place: item for place, item in self._known.items() if item is not session}

    def _sweep(self) -> None:
        for session in list(self._known.values()):
            self.is_live(session)
        while len(self._known) >= MOST_SESSIONS:
            oldest = min(self._known.values(), key=lambda item: item.used_at)
            self.end(oldest, "You were signed out because too many people are signed in.")


def _place(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()


class Tries:
    """How often each address has tried to sign in within the last minute."""

    def __init__(self, most: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most, self._monotonic = most, monotonic
        self._tried: dict[str, list[float]] = {}

    def allow(self, address: str) -> bool:
        """Counts a try; False when there were too many."""
        now = self._monotonic()
        if len(self._tried) > MOST_SESSIONS:
            self._tried = {entry: times for entry, times in self._tried.items() if times[-1] > now - 60.0}
        times = [item for item in self._tried.get(address, ()) if item > now - 60.0]
        if len(times) >= self._most:
            return False
        self._tried[address] = [*times, now]
        return True
