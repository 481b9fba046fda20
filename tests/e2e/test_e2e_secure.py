"""Secure sums over the real platform: bit for bit the clear sum, through kill -9 of clerks and devices, and liars."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.e2e.neighbours import SECURE, NeighbourFixture
from tests.e2e.real_platform import RealPlatform


@pytest.fixture
def neighbours(shared_platform: RealPlatform, request: pytest.FixtureRequest) -> Iterator[NeighbourFixture]:
    made = NeighbourFixture(shared_platform, f"s{secrets.token_hex(2)}-", getattr(request, "param", 5))
    yield made
    made.stop()


@pytest.mark.smoke
def test_secure_model_equals_the_clear_model_and_stores_no_single_update(
    neighbours: NeighbourFixture,
) -> None:
    clear = neighbours.run(neighbours.publish(secure=False))
    secure = neighbours.run(neighbours.publish())
    assert secure.model_digests == clear.model_digests
    for home in neighbours.homes.values():
        ledger = home.ledger()
        assert ledger.spent().raw_releases == 4
        purposes = [entry.charge.purpose for entry in ledger.history()]
        assert sum(purpose.startswith("sum-") for purpose in purposes) == 2


def test_noise_is_shared_out_charged_once_and_its_price_alone_is_kept(neighbours: NeighbourFixture) -> None:
    task = neighbours.publish(noise=2.0)
    neighbours.run(task)
    for home in neighbours.homes.values():
        ledger = home.ledger()
        charges = [entry.charge for entry in ledger.history()]
        assert [(c.mechanism, c.multiplier, c.unit, c.adjacency) for c in charges] == [
            ("gaussian", 2.0, "device", "left-out")
        ] * 2
        sums, rho = ledger.sums_alone()
        assert sums == 2
        assert rho > sum(charge.rho for charge in charges)
        with closing(sqlite3.connect(home.folder / "clerk.db")) as database:
            assert database.execute("SELECT COUNT(*) FROM sessions").fetchone() == (0,)
            assert database.execute("SELECT COUNT(*) FROM commits").fetchone() == (0,)
    assert all(part.metrics == {} for part in neighbours.platform.admin.round(task, 1).participations)


@pytest.mark.parametrize(
    "place",
    [
        "stored",
        *(pytest.param(p, marks=pytest.mark.slow) for p in ("prepared", "offer", "ready_check", "agree", "answer")),
    ],
)
def test_a_device_killed_anywhere_goes_on_and_the_model_is_the_same(shared_platform: RealPlatform, place: str) -> None:
    neighbours = NeighbourFixture(shared_platform, f"k{secrets.token_hex(2)}-", 4)  # every device is a clerk
    try:
        clear = neighbours.run(neighbours.publish(secure=False, rounds=1))
        # A clerk that dies before it offers itself has the time that starting a process takes on a busy machine.
        task = neighbours.publish(rounds=1, parameters={"sums": SECURE | {"offer_seconds": 90.0}})
        victim = neighbours.names[1]
        for name in neighbours.names:
            neighbours.start(name, task, place if name == victim else "")
        died = neighbours.homes[victim].folder / "died"
        shared_platform.wait_until(died.exists, 90.0)
        neighbours.processes[victim].wait()
        neighbours.start(victim, task)
        assert neighbours.ended(task).model_digests == clear.model_digests, neighbours.story(task)
        sums = [e.charge for e in neighbours.homes[victim].ledger().history() if e.charge.purpose.startswith("sum-")]
        assert len(sums) == 1
    finally:
        neighbours.stop()


@pytest.mark.parametrize("neighbours", [7], indirect=True)
def test_three_in_ten_devices_and_a_clerk_may_be_lost(neighbours: NeighbourFixture) -> None:
    task = neighbours.publish(rounds=1, quorum=0.6, min_devices=4, round_seconds=15.0, auto_start=False)
    for name in neighbours.names:
        neighbours.start(name, task, "ready_check" if name == neighbours.names[0] else "")
    admin = neighbours.platform.admin
    neighbours.platform.wait_until(lambda: admin.task(task).enrolled == len(neighbours.names), 90.0)
    for name in neighbours.names[-2:]:
        neighbours.processes[name].kill()
    admin.start_task(task)
    neighbours.ended(task)
    states = {part.device_id: part.state for part in admin.round(task, 1).participations}
    assert sum(state == "delivered" for state in states.values()) >= 4, neighbours.story(task)


def test_device_whose_owner_does_not_know_clerks_declines_with_command(neighbours: NeighbourFixture) -> None:
    shy = neighbours.homes[neighbours.names[-1]]
    for name in neighbours.names[:-1]:
        shy.save_circle(shy.circle().without(neighbours.id(name)))
    # All five are needed to begin with: of four one that declines would leave too few.
    task = neighbours.publish(rounds=1, quorum=0.7, min_devices=4, auto_start=False)
    neighbours.run(task, once_enrolled=neighbours.platform.admin.start_task)
    messages = [e.message for e in neighbours.platform.admin.events(task) if e.kind == "work.declined"]
    assert messages
    assert all(
        "are not in this device's circle" in message and "coterie circle verify" in message for message in messages
    )
    assert not [e for e in shy.ledger().history() if e.charge.task == task]
