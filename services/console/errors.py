"""What the console itself refuses; everything else is the platform's word, passed on."""

from __future__ import annotations

from coterie.errors import CoterieError


class ConsoleError(CoterieError):
    """Root of the console's own refusals; the message is shown to the person."""


class SignedOut(ConsoleError):
    """There is no session, or it has ended."""


class NotForYou(ConsoleError):
    """The page is closed to the role that is signed in."""


class TooManyTries(ConsoleError):
    """Too many sign-ins from one address."""
