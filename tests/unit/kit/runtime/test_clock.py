"""The time a service goes by: its database's, and never a jump of the machine's own clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from services.kit.database.engine import Database
from services.kit.runtime.clock import SYNC_SECONDS, SharedClock
from services.kit.runtime.settings import ServiceSettings


class Hands:
    """A machine's clock and the time it counts, both set by hand."""

    def __init__(self) -> None:
        self.shown, self.counted = 1_000_000.0, 50.0

    def now(self) -> float:
        return self.shown

    def count(self) -> float:
        return self.counted

    def pass_by(self, seconds: float) -> None:
        self.shown += seconds
        self.counted += seconds


@pytest.fixture
def sqlite(tmp_path: object) -> Database:
    return Database(f"sqlite:///{tmp_path}/kit.db", "kit")


async def test_a_jump_of_the_machine_s_clock_is_followed_slowly(sqlite: Database) -> None:
    """An hour back is 0.1 × 15 s after the first look, 3 s after the second; time goes on all the while."""
    hands = Hands()
    clock = SharedClock(sqlite, hands, hands.count)
    assert clock.now() == 1_000_000.0
    hands.shown -= 3600.0
    assert clock.now() == 1_000_000.0
    for look in (1, 2):
        hands.pass_by(SYNC_SECONDS)
        before = clock.now()
        await clock.sync()
        assert before - clock.now() == pytest.approx(1.5)
        assert clock.now() == pytest.approx(1_000_000.0 + look * (SYNC_SECONDS - 1.5))
    await sqlite.close()


async def test_a_clock_that_was_never_set_is_put_right_at_once(sqlite: Database) -> None:
    hands = Hands()
    hands.shown = 0.0
    clock = SharedClock(sqlite, hands, hands.count)
    hands.pass_by(SYNC_SECONDS)
    hands.shown = 2_000_000.0
    await clock.sync()
    assert clock.now() == pytest.approx(2_000_000.0)
    assert clock.began_at == pytest.approx(2_000_000.0 - SYNC_SECONDS)
    await sqlite.close()


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_on_postgresql_all_processes_have_the_server_s_time(settings: ServiceSettings) -> None:
    database, hands = Database(settings.database_for("kit"), "kit"), Hands()
    hands.counted = time.monotonic()
    clock = SharedClock(database, hands, time.monotonic)
    assert clock.now() < 1_500_000.0
    await clock.start()
    assert abs(clock.now() - time.time()) < 30.0
    assert clock.began_at <= clock.now()
    earlier = clock.now()
    await asyncio.sleep(0)
    assert clock.now() >= earlier
    await clock.stop()
    await database.close()
