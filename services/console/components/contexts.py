"""What all pages share, and the context of one page: user, session, colour scheme and time zone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, tzinfo
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from starlette.requests import Request

from services.console.access.sessions import Person, Session, Sessions
from services.console.domain import words
from services.console.settings import ConsoleSettings
from services.console.wire.directory import Directory
from services.console.wire.graphs import Graphs
from services.console.wire.platform import GatewayClient, Platform
from services.console.wire.reports import Reports

ADMIN, PUBLISHER, DEVICE = "admin", "publisher", "device"
THEME_COOKIE, ZONE_COOKIE = "coterie-theme", "coterie-zone"


@dataclass(frozen=True, slots=True)
class AppContext:
    """State that the whole console shares, built once at start."""

    settings: ConsoleSettings
    sessions: Sessions
    gateway: GatewayClient
    directory: Directory
    graphs: Graphs
    reports: Reports

    @property
    def cookie(self) -> str:
        """Name of the session's cookie; browsers accept the prefix `__Host-` from this host over https only."""
        return "__Host-coterie" if self.settings.https else "coterie"

    def session_of(self, cookies: dict[str, str]) -> Session | None:
        """Return the live session of a browser's cookies."""
        return self.sessions.find(cookies.get(self.cookie, ""))


@dataclass(frozen=True, slots=True)
class PageContext:
    """One view of one page by one user."""

    app: AppContext
    session: Session
    platform: Platform
    dark: bool
    zone: tzinfo

    @classmethod
    def of(cls, app: AppContext, session: Session, request: Request) -> PageContext:
        """Build the context of a request."""
        return cls(
            app,
            session,
            Platform(app.gateway, app.sessions, session),
            request.cookies.get(THEME_COOKIE) == "dark",
            zone_of(request.cookies.get(ZONE_COOKIE, "")),
        )

    @property
    def person(self) -> Person:
        """The signed-in user."""
        return self.session.person

    @property
    def is_admin(self) -> bool:
        """Whether the user may see everything."""
        return self.person.role == ADMIN

    def touch(self) -> None:
        """Restart the session's idle time."""
        self.app.sessions.touch(self.session)

    def moment(self, at: float) -> str:
        """Format a time in the user's time zone."""
        return words.moment(at, self.zone)

    def ago(self, at: float) -> str:
        return words.ago(at, time.time())


def zone_of(cookie: str) -> tzinfo:
    """Return the time zone of a cookie; UTC for a missing or unknown one."""
    try:
        return ZoneInfo(unquote(cookie)[:64]) if cookie else UTC
    except (KeyError, ValueError, OSError):  # an unknown zone is a KeyError, a malformed name one of the others
        return UTC
