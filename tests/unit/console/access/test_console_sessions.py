"""Sessions end on time, and their stored form reveals no cookie."""

from __future__ import annotations

import pytest

from services.console.access import sessions as module
from services.console.access.sessions import Person, Sessions, SignInLimiter

ADA = Person("admin", "adm_1", "Ada", "", "key_1")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(idle_seconds=60.0, session_seconds=300.0, monotonic=clock)


def test_a_cookie_finds_its_session_and_no_other(sessions: Sessions) -> None:
    cookie = sessions.begin(ADA, "secret")
    result = sessions.find(cookie)
    assert result is not None
    assert result.person == ADA
    assert sessions.find(cookie[:-1]) is None
    assert sessions.find("") is None


def test_an_unused_session_ends(sessions: Sessions, clock: Clock) -> None:
    cookie = sessions.begin(ADA, "secret")
    clock.now += 59.0
    session = sessions.find(cookie)
    assert session is not None
    clock.now += 2.0
    assert sessions.find(cookie) is None
    assert "inactivity" in session.ended
    assert session.api_key == ""


def test_use_extends_the_idle_time_but_not_the_longest_session(sessions: Sessions, clock: Clock) -> None:
    cookie = sessions.begin(ADA, "secret")
    for _ in range(5):
        clock.now += 50.0
        session = sessions.find(cookie)
        assert session is not None
        sessions.touch(session)
    clock.now += 51.0
    assert sessions.find(cookie) is None


def test_finding_a_session_does_not_extend_it(sessions: Sessions, clock: Clock) -> None:
    """A page that refreshes itself must not keep an absent user signed in."""
    cookie = sessions.begin(ADA, "secret")
    for _ in range(3):
        clock.now += 25.0
        sessions.find(cookie)
    assert sessions.find(cookie) is None


def test_signing_out_forgets_the_key_at_once(sessions: Sessions) -> None:
    cookie = sessions.begin(ADA, "secret")
    session = sessions.find(cookie)
    assert session is not None
    sessions.end(session)
    assert sessions.find(cookie) is None
    assert not sessions.is_live(session)
    assert session.api_key == ""


def test_sessions_of_two_browsers_end_separately(sessions: Sessions) -> None:
    first, second = sessions.begin(ADA, "secret"), sessions.begin(ADA, "secret")
    assert first != second
    one = sessions.find(first)
    assert one is not None
    sessions.end(one)
    other = sessions.find(second)
    assert other is not None
    assert other.api_key == "secret"


def test_a_key_is_not_printed_with_its_session(sessions: Sessions) -> None:
    session = sessions.find(sessions.begin(ADA, "coterie_secret"))
    assert "coterie_secret" not in repr(session)


def test_the_number_of_sessions_is_bounded(sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SESSIONS", 3)
    cookies = []
    for _ in range(4):
        clock.now += 1.0
        cookies.append(sessions.begin(ADA, "secret"))
    assert [sessions.find(cooky) is not None for cooky in cookies] == [False, True, True, True]


def test_sign_in_attempts_per_address_and_minute_are_bounded(clock: Clock) -> None:
    limiter = SignInLimiter(2, clock)
    assert limiter.allow("a")
    assert limiter.allow("a")
    assert not limiter.allow("a")
    assert limiter.allow("b")
    clock.now += 61.0
    assert limiter.allow("a")
