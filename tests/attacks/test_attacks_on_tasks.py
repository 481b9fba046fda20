"""Attacks on other people's tasks: a publisher reads another's, a stranger joins one that is not for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from coterie.client.tasks import Tasks
from coterie.errors import Conflict
from coterie.records import Task
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.gateway.wire.convert import to_json
from services.kit.errors import InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture, service

__all__ = ["service"]
OWN_A, OWN_B = "own_a", "own_b"
RIVAL = Principal("publisher", "pub_2")
ADMIN = Principal("admin", "adm_1")

READS: dict[str, Callable[[Client, str], Awaitable[Any]]] = {
    "the task": lambda c, task: c.tasks.GetTask(pb.GetTaskRequest(task_id=task)),
    "starting it": lambda c, task: c.tasks.StartTask(pb.StartTaskRequest(task_id=task)),
    "cancelling it": lambda c, task: c.tasks.CancelTask(pb.CancelTaskRequest(task_id=task)),
    "its devices": lambda c, task: c.tasks.ListEnrolments(pb.ListEnrolmentsRequest(task_id=task)),
    "its rounds": lambda c, task: c.tasks.ListRounds(pb.ListRoundsRequest(task_id=task)),
    "a round": lambda c, task: c.tasks.GetRound(pb.GetRoundRequest(task_id=task, number=1)),
    "a device's rounds": lambda c, task: c.tasks.ListParticipations(
        pb.ListParticipationsRequest(task_id=task, device_id="dev_a")
    ),
    "its events": lambda c, task: c.tasks.ListEvents(pb.ListEventsRequest(task_id=task)),
    "its models": lambda c, task: c.tasks.ListModels(pb.ListModelsRequest(task_id=task)),
}
"""Everything there is to ask about a task."""


async def running_task(client: Client, **changes: Any) -> pb.Task:
    task = await client.create(["dev_a"], **changes)
    await client.start_task(task.id)
    await client.get_work("dev_a")
    return task


async def test_a_publisher_reads_nothing_of_another_s_task(service: ServiceFixture) -> None:
    client = await service.start()
    task = await running_task(client)
    for what, read in READS.items():
        set_principal(RIVAL)
        with pytest.raises(PermissionDenied, match="belongs to another publisher"):
            await read(client, task.id)
        for rightful in (Principal("publisher", "pub_1"), ADMIN):
            set_principal(rightful)
            assert await read(client, task.id) is not None, what


async def test_lists_hold_a_publisher_s_own_tasks_alone(service: ServiceFixture) -> None:
    client = await service.start()
    own = await client.create([])
    set_principal(RIVAL)
    assert not (await client.tasks.ListTasks(pb.ListTasksRequest())).tasks
    with pytest.raises(PermissionDenied, match="pub_1 is another publisher"):
        await client.tasks.ListTasks(pb.ListTasksRequest(publisher="pub_1"))
    for rightful in (Principal("publisher", "pub_1"), ADMIN, Principal("device", "dev_a", OWN_A)):
        set_principal(rightful)
        listed = (await client.tasks.ListTasks(pb.ListTasksRequest(publisher="pub_1", name="t"))).tasks
        assert [task.id for task in listed] == [own.id]
    assert not (await client.tasks.ListTasks(pb.ListTasksRequest(name="another"))).tasks


async def test_a_publisher_cannot_get_another_s_model_by_its_digest(service: ServiceFixture) -> None:
    """Neither by asking for it, nor by making a task that begins with it."""
    client = await service.start()
    digest = await client.upload_model(np.full(3, 7, np.float32))
    question = pb.AuthoriseDownloadRequest(digest=digest)
    specification = pb.TaskSpecification(name="theft", preset="fedavg", model_digests=[digest], rounds=1, min_devices=1)
    set_principal(RIVAL)
    for attempt in (
        lambda: client.tasks.AuthoriseDownload(question),
        lambda: client.tasks.CreateTask(pb.CreateTaskRequest(specification=specification)),
        lambda: client.tasks.AuthoriseDownload(question),
    ):
        with pytest.raises((NotFound, InvalidInput), match=f"no model {digest[:16]}"):
            await attempt()
    set_principal(Principal("publisher", "pub_1"))
    assert (await client.tasks.AuthoriseDownload(question)).digest == digest
    assert (await client.tasks.CreateTask(pb.CreateTaskRequest(specification=specification))).publisher == "pub_1"


@pytest.mark.parametrize(
    ("join_by", "invited"), [("owners", OWN_A), ("devices", "dev_a")], ids=["its owner", "the device"]
)
async def test_a_stranger_neither_joins_nor_sees_a_task_for_others(
    service: ServiceFixture, join_by: str, invited: str
) -> None:
    client = await service.start()
    task = await client.create([], join_by=join_by, invited=[invited, f"{invited}_too"], min_devices=1)
    digest = task.specification.model_digests[0]
    stranger, guest = Principal("device", "dev_b", OWN_B), Principal("device", "dev_a", OWN_A)
    attempts: tuple[Callable[[], Awaitable[Any]], ...] = (
        lambda: client.tasks.GetTask(pb.GetTaskRequest(task_id=task.id)),
        lambda: client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id="dev_b", samples=10)),
        lambda: client.tasks.ListRounds(pb.ListRoundsRequest(task_id=task.id)),
        lambda: client.tasks.AuthoriseDownload(pb.AuthoriseDownloadRequest(digest=digest)),
    )
    set_principal(stranger)
    for attempt in attempts:
        with pytest.raises((PermissionDenied, NotFound), match=r"ask its publisher|that you may read"):
            await attempt()
    assert not (await client.tasks.ListTasks(pb.ListTasksRequest())).tasks

    set_principal(guest)
    (seen,) = (await client.tasks.ListTasks(pb.ListTasksRequest())).tasks
    assert list(seen.specification.invited) == [invited]  # who else is invited is not a guest's to know
    with pytest.raises(PermissionDenied, match="for devices that joined"):
        await client.tasks.ListModels(pb.ListModelsRequest(task_id=task.id))
    await client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id="dev_a", samples=10))
    assert (await client.tasks.ListModels(pb.ListModelsRequest(task_id=task.id))).models[0].digest == digest
    assert (await client.tasks.AuthoriseDownload(pb.AuthoriseDownloadRequest(digest=digest))).digest == digest


async def test_an_admin_cannot_enrol_a_device_of_an_owner_that_is_not_invited(service: ServiceFixture) -> None:
    """The registry of this service says that every device is own_1's."""
    client = await service.start()
    theirs = await client.create([], join_by="owners", invited=[OWN_A])
    ours = await client.create([], name="ours", join_by="owners", invited=["own_1"])
    set_principal(ADMIN)
    with pytest.raises(PermissionDenied, match="dev_b is not invited"):
        await client.tasks.Enrol(pb.EnrolRequest(task_id=theirs.id, device_id="dev_b", samples=10))
    assert (await client.tasks.Enrol(pb.EnrolRequest(task_id=ours.id, device_id="dev_b", samples=10))).samples == 10


async def test_an_open_task_is_open_and_its_inside_is_for_those_who_joined(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(["dev_a"])
    set_principal(Principal("device", "dev_b", OWN_B))
    assert (await client.tasks.GetTask(pb.GetTaskRequest(task_id=task.id))).specification.join_by == words.JOIN_BY_OPEN
    for what in ("its rounds", "its models"):
        with pytest.raises(PermissionDenied, match="for devices that joined"):
            await READS[what](client, task.id)
    await client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id="dev_b", samples=10))
    for what in ("its rounds", "its models"):
        await READS[what](client, task.id)


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"join_by": 99, "invited": ["own_a"]}, "not '99'"),
    ({"join_by": "owners"}, "no device can join"),
    ({"invited": ["own_a"]}, "leave it out of an open task"),
    ({"join_by": "owners", "invited": ["dev_a"]}, "'dev_a' is not an id of owners"),
    ({"join_by": "devices", "invited": ["dev_a; drop"]}, "is not an id of devices"),
    ({"join_by": "devices", "invited": ["dev_a", "dev_a"]}, "twice"),
    ({"join_by": "devices", "invited": [f"dev_{i}" for i in range(1001)]}, "at most 1000"),
]


async def test_an_invitation_that_makes_no_sense_is_refused(service: ServiceFixture) -> None:
    client = await service.start()
    for changes, message in SENSELESS:
        with pytest.raises(InvalidInput, match=message):
            await client.create([], **changes)


async def test_two_publishers_may_use_the_same_name_and_devices_are_shown_both(service: ServiceFixture) -> None:
    client = await service.start()
    first = await client.create([])
    digest = await service.blobs.put_bytes(save({"w": np.ones(2, np.float32)}))
    set_principal(RIVAL)
    await client.tasks.RegisterModel(pb.RegisterModelRequest(digest=digest))
    specification = pb.TaskSpecification(name="t", preset="fedavg", model_digests=[digest], rounds=1, min_devices=1)
    second = await client.tasks.CreateTask(pb.CreateTaskRequest(specification=specification))
    assert (await client.tasks.CreateTask(pb.CreateTaskRequest(specification=specification))).id == second.id
    set_principal(Principal("device", "dev_a", OWN_A))
    listed = (await client.tasks.ListTasks(pb.ListTasksRequest(name="t"))).tasks
    assert [task.id for task in listed] == [second.id, first.id]


def test_joining_by_an_ambiguous_name_is_refused_with_the_choices() -> None:
    """A rival's task of the same name must not be joined for the one that is meant."""
    rivals = [task_record("tsk_new", "pub_2"), task_record("tsk_old", "pub_1")]
    with pytest.raises(Conflict, match=r"2 publishers .*'digits'.*tsk_new \(created, of pub_2\), tsk_old") as refused:
        Listing(rivals).find_task("digits")
    assert "give the id" in str(refused.value)
    assert Listing(rivals).find_task("tsk_old").publisher == "pub_1"
    assert Listing(rivals[1:]).find_task("digits").id == "tsk_old"


class Listing(Tasks):
    """The SDK's tasks, as a platform of any age lists them."""

    def __init__(self, listed: list[Task]) -> None:
        self._listed = listed

    def tasks(self, *, state: str = "", publisher: str = "", name: str = "") -> Iterator[Task]:
        return iter([*self._listed, task_record("tsk_other", "pub_1", name="other")])

    def task(self, task_id: str) -> Task:
        return next(task for task in self._listed if task.id == task_id)


def task_record(task_id: str, publisher: str, name: str = "digits") -> Task:
    document = to_json(pb.Task(id=task_id, publisher=publisher, specification=pb.TaskSpecification(name=name)))
    return Task.from_json(document | {"state": "created"})
