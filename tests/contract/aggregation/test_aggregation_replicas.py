"""Several replicas of aggregation on one PostgreSQL: what one is told the others hear, and none waits in vain."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.words.v1 import words_pb2 as words
from services.aggregation.rounds import closing
from services.kit.bell import Bell
from services.kit.caller import Caller, set_caller
from services.kit.chimes import Chimes
from services.kit.database import Database
from services.kit.settings import ServiceSettings
from tests.contract.aggregation.conftest import Client, House, eventually

POSTGRESQL = pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
PATIENCE_SECONDS = 25.0


async def seat_of(client: Client, device: str) -> pb.WorkItem:
    set_caller(Caller("device", device))
    found: list[pb.WorkItem] = []

    async def is_there() -> bool:
        found[:] = (await client.work.GetWork(pb.GetWorkRequest(device_id=device))).items
        return bool(found)

    await eventually(is_there)
    return found[0]


@POSTGRESQL
async def test_a_letter_wakes_its_reader_at_another_replica(house: House) -> None:
    house.fakes.trust = {("dev_a", "dev_b"): 0.9}
    one, two = await house.start("one"), await house.start("two")
    task = await one.create(["dev_a", "dev_b"], rounds=1, preset="clusters")
    await one.start_task(task.id)
    seats = {device: await seat_of(one, device) for device in ("dev_a", "dev_b")}
    await seat_of(two, "dev_a")
    (member,) = [device for device, seat in seats.items() if seat.role == words.ROLE_MEMBER]
    (head,) = seats.keys() - {member}
    await asyncio.wait_for(two.app.chimes.heard.wait(), 60.0)
    set_caller(Caller("device", head))
    waiting = pb.ListLettersRequest(task_id=task.id, round=1, device_id=head, wait_seconds=PATIENCE_SECONDS)
    reading = asyncio.create_task(_letters(two, waiting))
    await eventually(lambda: _sleeps(two.app.bell, f"letters:{task.id}:{head}"))
    set_caller(Caller("device", member))
    sealed = await house.blobs.put_bytes(b"sealed")
    letter = pb.Letter(
        task_id=task.id,
        round=1,
        sender=member,
        recipient=head,
        digest=sealed,
        size_bytes=6,
        kind=words.LETTER_KIND_UPDATE,
        plan_version=seats[member].plan_version,
    )
    await one.work.SendLetter(pb.SendLetterRequest(letter=letter))
    reply, seconds = await reading
    assert [found.digest for found in reply.letters] == [hashlib.sha256(b"sealed").hexdigest()]
    assert seconds < PATIENCE_SECONDS - 1.0  # woken, and not told when its time was over


async def _letters(client: Client, request: pb.ListLettersRequest) -> tuple[pb.ListLettersReply, float]:
    began = asyncio.get_running_loop().time()
    reply = await client.work.ListLetters(request, timeout=60.0)
    return reply, asyncio.get_running_loop().time() - began


async def _sleeps(bell: Bell, key: str) -> bool:
    return key in bell._sleepers


@POSTGRESQL
async def test_a_closer_does_not_wait_for_a_replica_that_holds_nothing_any_more(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "PARTIAL_WAIT_SECONDS", 600.0)
    one, two = await house.start("one"), await house.start("two")
    task = await one.create(["dev_a", "dev_b"], rounds=1)
    await one.start_task(task.id)
    await seat_of(one, "dev_a")
    await two.deliver(await seat_of(two, "dev_a"), "dev_a", [2.0, 0.0, 0.0])
    await two.app.stop()
    again = await house.start("two")
    monkeypatch.setattr(again.app.conductor, "_begin_closing", _nothing)
    await seat_of(again, "dev_b")
    await one.deliver(await seat_of(one, "dev_b"), "dev_b", [0.0, 2.0, 0.0])
    ended = await one.finished(task.id)
    assert (await one.model(ended.model_digests[0])).tolist() == [1.0, 1.0, 0.0]


async def _nothing(*_: object) -> None:
    """Leaves closing to the other replica."""


@POSTGRESQL
async def test_rings_are_heard_again_after_the_listening_connection_was_lost(settings: ServiceSettings) -> None:
    """And whoever was asleep is woken to look again: a ring may have been missed."""
    database, bell = Database(settings.database_for("kit"), "kit"), Bell()
    chimes = Chimes(database, bell)
    await chimes.start()
    await asyncio.wait_for(chimes.heard.wait(), 60.0)
    with bell.listen("elsewhere") as sleeper:
        async with database.writing() as tx:
            await tx.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
            )
        assert await sleeper.wait(60.0)
    await asyncio.wait_for(chimes.heard.wait(), 60.0)
    with bell.listen("here") as sleeper:
        async with database.writing() as tx:
            await chimes.carry(tx, "here")
        assert await sleeper.wait(60.0)
    await chimes.stop()
    await database.close()
