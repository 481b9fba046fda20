"""A device outside a committee does not poll for duties while it waits for work; a called one serves to the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coterie.agent import committee_worker
from coterie.agent.committee_worker import Clerking
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.transport import Interrupted, Stop
from coterie.records import Duty, DutyKind
from coterie.secure_sums.committee_store import CommitteeStore
from coterie.secure_sums.terms import Place

PATIENCE_SECONDS = 20.0
OFFER, FORGET = (
    Duty(kind=kind, task_id="tsk_1", round=1, session_number=1, cohort=0, deadline_at=time.time() + 60.0)
    for kind in (DutyKind.KEY_OFFER, DutyKind.FORGET)
)


class Registry:
    """The platform as far as duties go: tells what it is given, each once, and counts the questions."""

    def __init__(self, stop: Stop) -> None:
        self.stop, self.asked, self.waiting, self.offers = stop, 0, list[Duty](), list[Place]()
        self.notifier = threading.Condition()

    def duties(self, *, wait_seconds: float) -> tuple[Duty, ...]:
        if self.stop.is_set:
            raise Interrupted
        with self.notifier:
            self.asked += 1
            self.notifier.notify_all()
            self.notifier.wait_for(lambda: bool(self.waiting), min(wait_seconds, 0.05))
            duties, self.waiting = tuple(self.waiting), []
            return duties

    def give(self, duty: Duty) -> None:
        with self.notifier:
            self.waiting.append(duty)
            self.notifier.notify_all()

    def put_key_offer(self, place: Place, device_id: str, **_: Any) -> None:
        self.offers.append(place)

    def close(self) -> None:
        pass


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)


@contextmanager
def clerk_of(folder: Path) -> Iterator[tuple[Clerking, Registry]]:
    stop = Stop()
    platform = Registry(stop)
    keys = DeviceKeys.load_or_create(folder / "keys.json")
    with Clerking(platform, "dev_1", keys, CommitteeStore(folder / "clerk.db"), stop) as clerk:  # type: ignore[arg-type]
        yield clerk, platform


def quiet(platform: Registry) -> bool:
    """Whether it is asked nothing for longer than a question takes; one that is under way is waited for."""
    time.sleep(0.2)
    before = platform.asked
    time.sleep(0.2)
    return platform.asked == before


def begin_wait(clerk: Clerking) -> None:
    """Poll for work such that the reply calls the clerk."""
    eventually(clerk.begin_waiting)


def test_device_without_seat_asks_for_no_duties_while_it_waits_for_work(tmp_path: Path) -> None:
    with clerk_of(tmp_path) as (clerk, platform):
        begin_wait(clerk)
        eventually(lambda: quiet(platform))
        platform.give(OFFER)
        clerk.end_waiting(called=True)
        eventually(lambda: bool(platform.offers))


def test_committee_member_polls_until_duty_to_forget(tmp_path: Path) -> None:
    with clerk_of(tmp_path) as (clerk, platform):
        platform.give(OFFER)
        eventually(lambda: bool(platform.offers))
        asked = platform.asked
        eventually(lambda: platform.asked > asked + 2)
        assert not clerk.begin_waiting(), "it asks by itself"
        platform.give(FORGET)
        begin_wait(clerk)
        eventually(lambda: quiet(platform))


def test_a_clerk_that_was_killed_finds_its_duties_when_it_comes_back(tmp_path: Path) -> None:
    CommitteeStore(tmp_path / "clerk.db").open_session(
        Place("tsk_1", 0, 1, 1), lambda: bytes(32), time.time(), time.time()
    )
    with clerk_of(tmp_path) as (clerk, platform):
        eventually(lambda: platform.asked > 3)
        assert not clerk.begin_waiting()


def test_platform_that_calls_for_nothing_is_asked_and_device_rests_again(tmp_path: Path) -> None:
    with clerk_of(tmp_path) as (clerk, platform):
        begin_wait(clerk)
        eventually(lambda: quiet(platform))
        asked = platform.asked
        clerk.end_waiting(called=True)
        assert not clerk.begin_waiting(), "it asks what for before the next call"
        eventually(lambda: platform.asked > asked)
        begin_wait(clerk)
        eventually(lambda: quiet(platform))
        assert platform.offers == []


def test_a_device_that_is_long_at_other_work_asks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committee_worker, "BUSY_SECONDS", 0.02)
    with clerk_of(tmp_path) as (clerk, platform):
        begin_wait(clerk)
        eventually(lambda: quiet(platform))
        clerk.end_waiting(called=False)  # there is work, and it trains
        platform.give(OFFER)
        eventually(lambda: bool(platform.offers))
