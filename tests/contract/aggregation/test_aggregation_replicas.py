"""Several replicas of aggregation on one PostgreSQL: what one receives the others learn, and none waits in vain."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.rounds import closing, conductor
from services.aggregation.rounds.closing import Closer
from services.aggregation.rounds.leases import Leases
from services.kit.database.engine import Database
from services.kit.errors import InvalidInput
from services.kit.notify.notifier import Notifier
from services.kit.notify.replica_notifier import ReplicaNotifier
from services.kit.rpc.principal import Principal, set_principal
from services.kit.runtime.settings import ServiceSettings
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually

POSTGRESQL = pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
PATIENCE_SECONDS = 25.0


async def seat_of(client: Client, device: str, number: int = 1) -> pb.WorkItem:
    """A device's work in a round, once this replica has noticed that it is open."""
    items: list[pb.WorkItem] = []

    async def is_there() -> bool:
        set_principal(Principal("device", device))
        items[:] = (await client.work.GetWork(pb.GetWorkRequest(device_id=device))).items
        return any(item.round == number for item in items)

    await eventually(is_there)
    return items[0]


@POSTGRESQL
async def test_a_letter_wakes_its_reader_at_another_replica(service: ServiceFixture) -> None:
    service.fakes.trust = {("dev_a", "dev_b"): 0.9}
    one, two = await service.start("one"), await service.start("two")
    task = await one.create(["dev_a", "dev_b"], rounds=1, preset="clusters")
    await one.start_task(task.id)
    assignments = {device: await seat_of(one, device) for device in ("dev_a", "dev_b")}
    await seat_of(two, "dev_a")
    (member,) = [device for device, assignment in assignments.items() if assignment.role == words.ROLE_MEMBER]
    (head,) = assignments.keys() - {member}
    await asyncio.wait_for(two.app.replica_notifier.heard.wait(), 60.0)
    set_principal(Principal("device", head))
    waiting = pb.ListLettersRequest(task_id=task.id, round=1, device_id=head, wait_seconds=PATIENCE_SECONDS)
    reading = asyncio.create_task(_letters(two, waiting))
    await eventually(lambda: _sleeps(two.app.notifier, f"letters:{task.id}:{head}"))
    set_principal(Principal("device", member))
    sealed = await service.blobs.put_bytes(b"sealed")
    letter = pb.Letter(
        task_id=task.id,
        round=1,
        sender=member,
        recipient=head,
        digest=sealed,
        size_bytes=6,
        kind=words.LETTER_KIND_UPDATE,
        plan_version=assignments[member].plan_version,
    )
    await one.work.SendLetter(pb.SendLetterRequest(letter=letter))
    reply, seconds = await reading
    assert [result.digest for result in reply.letters] == [hashlib.sha256(b"sealed").hexdigest()]
    assert seconds < PATIENCE_SECONDS - 1.0  # woken, and not told when its time was over


async def _letters(client: Client, request: pb.ListLettersRequest) -> tuple[pb.ListLettersReply, float]:
    began = asyncio.get_running_loop().time()
    reply = await client.work.ListLetters(request, timeout=60.0)
    return reply, asyncio.get_running_loop().time() - began


async def _sleeps(notifier: Notifier, key: str) -> bool:
    return key in notifier._waiting


@POSTGRESQL
async def test_a_closer_does_not_wait_for_a_replica_that_holds_nothing_any_more(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "PARTIAL_WAIT_SECONDS", 600.0)
    one, two = await service.start("one"), await service.start("two")
    task = await one.create(["dev_a", "dev_b"], rounds=1)
    await one.start_task(task.id)
    await seat_of(one, "dev_a")
    await two.deliver(await seat_of(two, "dev_a"), "dev_a", [2.0, 0.0, 0.0])
    await two.app.stop()
    again = await service.start("two")
    monkeypatch.setattr(Leases, "begin", _but_of("two", Leases.begin))
    await seat_of(again, "dev_b")
    await one.deliver(await seat_of(one, "dev_b"), "dev_b", [0.0, 2.0, 0.0])
    ended = await one.finished(task.id)
    assert (await one.model(ended.model_digests[0])).tolist() == [1.0, 1.0, 0.0]


def _but_of(replica: str, act: Callable[[Leases, Any], Awaitable[None]]) -> Callable[[Leases, Any], Awaitable[None]]:
    """Leaves closing to the other replicas."""

    async def acted(self: Leases, round_: Any) -> None:
        if self.replica != replica:
            await act(self, round_)

    return acted


@POSTGRESQL
async def test_rings_are_heard_again_after_the_listening_connection_was_lost(settings: ServiceSettings) -> None:
    """Every sleeper wakes to check again: it may have missed a notification."""
    database, notifier = Database(settings.database_for("kit"), "kit"), Notifier()
    replica_notifier = ReplicaNotifier(database, notifier)
    await replica_notifier.start()
    await asyncio.wait_for(replica_notifier.heard.wait(), 60.0)
    with notifier.subscribe("elsewhere") as sleeper:
        async with database.writing() as tx:
            await tx.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
            )
        assert await sleeper.wait(60.0)
    await asyncio.wait_for(replica_notifier.heard.wait(), 60.0)
    with notifier.subscribe("here") as sleeper:
        async with database.writing() as tx:
            await replica_notifier.carry(tx, "here")
        assert await sleeper.wait(60.0)
    await replica_notifier.stop()
    await database.close()


# --- clocks, leases and faults ----------------------------------------------------------------------------------------


class Off:
    """A machine's clock that is off by a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return time.time() + self.seconds


async def play(
    service: ServiceFixture, clients: list[Client], devices: list[str], task_id: str, rounds: int
) -> pb.Task:
    """Every device delivers in every round, to the replicas in turn; the task's end."""
    for number in range(1, rounds + 1):
        for index, device in enumerate(devices):
            client = clients[(number + index) % len(clients)]
            item = await seat_of(client, device, number)
            value = [0.0, 0.0, float(number)]
            value[index % 2] = 1.0
            await client.deliver(item, device, value)
        await eventually(lambda: _is_past(clients, task_id, number))  # noqa: B023
    return await clients[0].finished(task_id)


async def _is_past(clients: list[Client], task_id: str, number: int) -> bool:
    tasks = [await client.get_task(task_id) for client in clients]
    return all(task.round > number or task.state != words.TASK_STATE_RUNNING for task in tasks)


@POSTGRESQL
@pytest.mark.parametrize("seconds", [10.0, 600.0, -600.0, -3600.0])
async def test_a_replica_whose_clock_is_off_neither_ends_nor_hurries_a_round(
    service: ServiceFixture, seconds: float
) -> None:
    """Deadlines, leases and signs of life go by the database's clock."""
    one, two = await service.start("one"), await service.start("two", Off(seconds))
    task = await one.create(["dev_a", "dev_b"], rounds=2, round_seconds=120.0)
    await two.start_task(task.id)
    item = await seat_of(one, "dev_a")
    assert abs(item.deadline_at - time.time() - 120.0) < 60.0
    ended = await play(service, [one, two], ["dev_a", "dev_b"], task.id, 2)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await one.model(ended.model_digests[0])).tolist() == [1.0, 1.0, 3.0]


@POSTGRESQL
async def test_replica_returning_after_losing_its_lease_changes_nothing(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of closing, it finds the round done, its updates swept, and goes on with the next."""
    one, two = await service.start("one"), await service.start("two")
    monkeypatch.setattr(Leases, "begin", _but_of("two", Leases.begin))
    stopped, go_on, close = asyncio.Event(), asyncio.Event(), Closer.store

    async def stops(self: Closer, *arguments: Any) -> None:
        if self.replica == "one" and not go_on.is_set():
            stopped.set()
            await go_on.wait()
        await close(self, *arguments)

    monkeypatch.setattr(Closer, "store", stops)
    look_around = conductor.Conductor._look_around

    async def silent(self: conductor.Conductor, seen: dict[str, int]) -> dict[str, int]:
        if self.replica == "one" and stopped.is_set() and not go_on.is_set():
            await go_on.wait()
        return await look_around(self, seen)

    monkeypatch.setattr(conductor.Conductor, "_look_around", silent)
    task = await one.create(["dev_a", "dev_b"], rounds=2)
    await one.start_task(task.id)
    for device, client, values in (("dev_a", one, [2.0, 0.0, 0.0]), ("dev_b", two, [0.0, 2.0, 0.0])):
        await client.deliver(await seat_of(client, device), device, values)
    await asyncio.wait_for(stopped.wait(), 60.0)
    monkeypatch.setattr(Leases, "begin", _but_of("no replica", Leases.begin))
    await eventually(lambda: _is_past([two], task.id, 1))
    go_on.set()
    for device, values in (("dev_a", [1.0, 0.0, 0.0]), ("dev_b", [0.0, 1.0, 0.0])):
        await two.deliver(await seat_of(two, device, 2), device, values)
    ended = await one.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await one.model(ended.model_digests[0])).tolist() == [1.5, 1.5, 0.0]


@POSTGRESQL
async def test_shares_of_sums_leave_no_bytes_behind(service: ServiceFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leases, "begin", _but_of("two", Leases.begin))
    one, two = await service.start("one"), await service.start("two")
    task = await one.create(["dev_a", "dev_b"], rounds=2)
    await one.start_task(task.id)
    ended = await play(service, [one, two], ["dev_a", "dev_b"], task.id, 2)
    assert ended.state == words.TASK_STATE_FINISHED
    stored: set[str] = set()
    versions = 3  # the first model, and one of each round

    async def is_swept() -> bool:
        stored.clear()
        async for page in service.blobs.every():
            stored.update(blob.name for blob in page)
        return len(stored) == versions

    await eventually(is_swept, 20.0)


async def test_a_fault_is_never_a_task_s_end(service: ServiceFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a refusal of a state that has changed since, nor one that comes and goes."""
    client = await service.start()
    task = await client.create(["dev_a"], rounds=1)
    play_open, times = client.app.conductor.opener.__class__.open, iter(range(100))
    faults: list[Exception] = [RuntimeError("odd"), ValueError("odd"), KeyError("odd"), OSError("odd")] * 2
    faults += [InvalidInput("no"), RuntimeError("odd"), InvalidInput("no"), InvalidInput("no"), RuntimeError("odd")]

    async def opens(self: Any, *arguments: Any, **named: Any) -> bool:
        if (number := next(times)) < len(faults):
            raise faults[number]
        return await play_open(self, *arguments, **named)

    monkeypatch.setattr(conductor, "LONGEST_BACKOFF_SECONDS", 0.05)
    monkeypatch.setattr(client.app.conductor.opener.__class__, "open", opens)
    await client.start_task(task.id)
    await client.deliver(await client.get_work("dev_a", wait=30.0), "dev_a", [1.0, 2.0, 3.0])
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert next(times) > len(faults)


async def test_a_refusal_that_repeats_itself_while_nothing_changes_ends_the_task(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await service.start()
    task = await client.create(["dev_a"], rounds=1)
    tried: list[int] = []

    async def refuses(*_: Any, **__: Any) -> bool:
        tried.append(1)
        raise InvalidInput("this cannot be planned")

    monkeypatch.setattr(client.app.conductor.opener.__class__, "open", refuses)
    await client.start_task(task.id)
    ended = await client.finished(task.id)
    assert (ended.state, ended.reason) == (words.TASK_STATE_FAILED, "invalid_input: this cannot be planned")
    assert len(tried) == conductor.REFUSALS_BEFORE_FAILURE


@POSTGRESQL
async def test_a_newcomer_of_an_asynchronous_round_may_be_met_by_any_replica(service: ServiceFixture) -> None:
    """It enrols at one, gets its work at another and delivers at the first, which closes the round with it."""
    one, two = await service.start("one"), await service.start("two")
    task = await one.create(["dev_a", "dev_b"], rounds=1, mode="asynchronous", min_devices=2)
    await one.start_task(task.id)
    await seat_of(two, "dev_b")
    await two.deliver(await seat_of(two, "dev_a"), "dev_a", [2.0, 0.0, 0.0])
    set_principal(Principal("device", "dev_c"))
    await one.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id="dev_c", samples=10))
    await one.deliver(await seat_of(two, "dev_c"), "dev_c", [0.0, 2.0, 0.0])
    ended = await one.finished(task.id)
    assert (await one.model(ended.model_digests[0])).tolist() == [1.0, 1.0, 0.0]
