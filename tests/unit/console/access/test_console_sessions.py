"""Sessions end when they should, and what is kept of them opens nothing."""

from __future__ import annotations

import pytest

from services.console.access import sessions as module
from services.console.access.sessions import Person, Sessions, Tries

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


def test_a_session_ends_when_nobody_uses_it(sessions: Sessions, clock: Clock) -> None:
    cookie = sessions.begin(ADA, "secret")
    clock.now += 59.0
    session = sessions.find(cookie)
    assert session is not None
    clock.now += 2.0
    assert sessions.find(cookie) is None
    assert "nothing was done" in session.ended
    assert session.api_key == ""


def test_use_puts_off_the_idle_end_but_not_the_last_one(sessions: Sessions, clock: Clock) -> None:
    cookie = sessions.begin(ADA, "secret")
    for _ in range(5):
        clock.now += 50.0
        session = sessions.find(cookie)
        assert session is not None
        sessions.touch(session)
    clock.now += 51.0
    assert sessions.find(cookie) is None


def test_looking_for_a_session_is_no_use_of_it(sessions: Sessions, clock: Clock) -> None:
    """A page that refreshes itself must not keep somebody signed in who went away."""
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


def test_two_browsers_of_one_person_end_apart(sessions: Sessions) -> None:
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


def test_tries_from_one_address_are_bounded_by_the_minute(clock: Clock) -> None:
    tries = Tries(2, clock)
    assert tries.allow("a")
    assert tries.allow("a")
    assert not tries.allow("a")
    assert tries.allow("b")
    clock.now += 61.0
    assert tries.allow("a")
