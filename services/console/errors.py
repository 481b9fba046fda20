"""The console's own errors; errors of the platform pass through unchanged."""

from __future__ import annotations

from coterie.errors import CoterieError


class ConsoleError(CoterieError):
    """Root of the console's own errors; the page shows the message to the user."""


class SignedOut(ConsoleError):
    """The request has no session, or the session has ended."""


class NotForYou(ConsoleError):
    """The role of the signed-in user may not open the page."""


class TooManyTries(ConsoleError):
    """One address tried to sign in too often."""
