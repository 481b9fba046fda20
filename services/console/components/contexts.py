"""A context: who looks at a page, through which session, in which light and time zone."""

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
    """What the whole console shares, built once at start."""

    settings: ConsoleSettings
    sessions: Sessions
    gateway: GatewayClient
    directory: Directory
    graphs: Graphs
    reports: Reports

    @property
    def cookie(self) -> str:
        """Name of the session's cookie; over https browsers then insist that only this host set it."""
        return "__Host-coterie" if self.settings.https else "coterie"

    def session_of(self, cookies: dict[str, str]) -> Session | None:
        """The session a browser's cookies belong to."""
        return self.sessions.find(cookies.get(self.cookie, ""))


@dataclass(frozen=True, slots=True)
class PageContext:
    """One look at one page."""

    app: AppContext
    session: Session
    platform: Platform
    dark: bool
    zone: tzinfo

    @classmethod
    def of(cls, app: AppContext, session: Session, request: Request) -> PageContext:
        """The context a request makes."""
        return cls(
            app,
            session,
            Platform(app.gateway, app.sessions, session),
            request.cookies.get(THEME_COOKIE) == "dark",
            zone_of(request.cookies.get(ZONE_COOKIE, "")),
        )

    @property
    def person(self) -> Person:
        """Who looks."""
        return self.session.person

    @property
    def is_admin(self) -> bool:
        """Whether everything may be seen."""
        return self.person.role == ADMIN

    def touch(self) -> None:
        """The person did something."""
        self.app.sessions.touch(self.session)

    def moment(self, at: float) -> str:
        """A point in time, in the reader's zone."""
        return words.moment(at, self.zone)

    def ago(self, at: float) -> str:
        """How long ago."""
        return words.ago(at, time.time())


def zone_of(cookie: str) -> tzinfo:
    """The time zone a browser says it is in; UTC when it says none that exists."""
    try:
        return ZoneInfo(unquote(cookie)[:64]) if cookie else UTC
    except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError; odd names are one of these
        return UTC
    except KeyError:
        return UTC
