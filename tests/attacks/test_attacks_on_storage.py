"""Attacks on storage: unwanted bytes, too many bytes, and bytes without a row."""

import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy as sa
from obstore.store import MemoryStore
from safetensors.numpy import save

from coterie.records.enums import PolicyLearner, PolicyState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation import tables as aggregation_tables
from services.aggregation.usecases.blobs import Sweeper
from services.kit.database.blobs import BlobStore
from services.kit.database.engine import Database
from services.kit.errors import InvalidInput, PermissionDenied
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import SERVICE, Principal, set_principal
from services.kit.runtime.clock import SystemClock
from services.topology import tables as topology_tables
from services.topology.domain.records import StoredPolicy
from services.topology.store import policies
from tests.attacks.test_attacks_on_the_door import serving
from tests.contract.aggregation.committee import SECURE, Committee
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually, service
from tests.contract.gateway.conftest import bearer, platform
from tests.contract.gateway.fakes import FakePlatform

__all__ = ["platform", "service"]
DAY = 86_400.0
LARGE = os.urandom(20 << 20)
only_sqlite = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)


def stored(folder: Path) -> set[str]:
    """Names of all files in the blob store, staging ones too."""
    return {file.name for file in (folder / "blobs").rglob("*") if file.is_file()}


@asynccontextmanager
async def rest(service: ServiceFixture, platform: FakePlatform, client: Client) -> AsyncIterator[httpx.AsyncClient]:
    """REST before this aggregation server; the caller is device dev_1 unless it says otherwise."""
    address = f"127.0.0.1:{client.app.server.port}"
    async with (
        serving(platform, service.settings.data_dir, aggregation_address=address, insecure=True) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer("device"), timeout=60) as caller,
    ):
        yield caller


def promised(body: bytes, **headers: str) -> dict[str, Any]:
    return {"content": body, "headers": {"Coterie-Digest": hashlib.sha256(body).hexdigest()} | headers}


@only_sqlite
@pytest.mark.parametrize("body", [LARGE, LARGE[:1000]], ids=["20 MiB", "1 kB"])
async def test_twenty_mebibytes_for_an_unknown_task_are_not_kept(
    service: ServiceFixture, platform: FakePlatform, body: bytes
) -> None:
    client = await service.start()
    task = await client.create(["dev_2"], auto_start=False)
    before = stored(service.settings.data_dir)
    async with rest(service, platform, client) as caller:
        for path in (
            "/v1/tasks/tsk_nobody/rounds/1/updates/dev_1",
            f"/v1/tasks/{task.id}/rounds/1/updates/dev_1",
            "/v1/tasks/tsk_nobody/rounds/1/letters/dev_2?kind=update",
            f"/v1/tasks/{task.id}/rounds/1/letters/dev_2?kind=update",
        ):
            answer = await caller.put(path, **promised(body))
            assert answer.status_code in (400, 404, 409), answer.text
            assert stored(service.settings.data_dir) == before
        refused = await caller.post("/v1/models", **promised(body) | {"headers": bearer("publisher")})
        assert refused.status_code == 400
    assert stored(service.settings.data_dir) == before


@only_sqlite
async def test_what_belongs_to_a_round_is_kept_large_or_small(service: ServiceFixture, platform: FakePlatform) -> None:
    client = await service.start()
    digest = await client.upload_model(np.zeros(200_000, np.float32))
    task = await client.create(["dev_1", "dev_2"], preset="mesh", model_digests=[digest])
    await client.start_task(task.id)
    item = await client.get_work("dev_1", 30.0)
    async with rest(service, platform, client) as caller:
        for kind, body in (("parameters", LARGE[:700_000]), ("receipt", LARGE[:500])):
            path = f"/v1/tasks/{task.id}/rounds/1/letters/dev_2?kind={kind}&plan_version={item.plan_version}"
            assert (await caller.put(path, **promised(body))).status_code == 200
            assert hashlib.sha256(body).hexdigest() in stored(service.settings.data_dir)
        huge = f"/v1/tasks/{task.id}/rounds/1/letters/dev_2?kind=update&plan_version={item.plan_version}"
        answer = await caller.put(huge, **promised(LARGE))
        assert (answer.status_code, answer.json()["reason"]) == (413, "letter_too_large")
        assert hashlib.sha256(LARGE).hexdigest() not in stored(service.settings.data_dir)


@only_sqlite
async def test_a_device_s_letters_have_a_quota_that_says_what_to_do(
    service: ServiceFixture, platform: FakePlatform
) -> None:
    service.settings = service.settings.model_copy(update={"device_quota_bytes": 1_500_000})
    client = await service.start()
    digest = await client.upload_model(np.zeros(200_000, np.float32))
    task = await client.create(["dev_1", "dev_2"], preset="mesh", model_digests=[digest])
    await client.start_task(task.id)
    item = await client.get_work("dev_1", 30.0)
    async with rest(service, platform, client) as caller:
        path = f"/v1/tasks/{task.id}/rounds/1/letters/dev_2?plan_version={item.plan_version}&kind="
        assert (await caller.put(path + "parameters", **promised(LARGE[:900_000]))).status_code == 200
        before = stored(service.settings.data_dir)
        answer = await caller.put(path + "update", **promised(LARGE[:900_001]))
        assert answer.json()["reason"] == "quota_spent"
        assert "wait until a round is over" in answer.json()["detail"]
        assert stored(service.settings.data_dir) == before


@only_sqlite
async def test_a_publisher_s_models_have_a_quota_and_forgetting_one_makes_room(
    service: ServiceFixture, platform: FakePlatform
) -> None:
    service.settings = service.settings.model_copy(update={"publisher_quota_bytes": 100_000})
    client = await service.start()
    first, second = (save({"w": np.full(20_000, value, np.float32)}) for value in (1.0, 2.0))
    publisher = bearer("publisher")
    async with rest(service, platform, client) as caller:
        made = await caller.post("/v1/models", content=first, headers=publisher)
        assert made.status_code == 201
        before = stored(service.settings.data_dir)

        async def pieces() -> AsyncIterator[bytes]:
            yield second  # without a Content-Length

        for body in (second, pieces()):
            refused = await caller.post("/v1/models", content=body, headers=publisher)
            assert refused.status_code in (409, 413), refused.text
        assert "DELETE /v1/models" in (await caller.post("/v1/models", content=second, headers=publisher)).text
        assert stored(service.settings.data_dir) == before
        assert (await caller.delete(f"/v1/models/{made.json()['digest']}", headers=publisher)).status_code == 204
        assert stored(service.settings.data_dir) == set()
        assert (await caller.post("/v1/models", content=second, headers=publisher)).status_code == 201


@only_sqlite
async def test_forgetting_a_model_takes_it_from_no_task_and_no_other_publisher(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(["dev_1"])
    (digest,) = task.specification.model_digests
    set_principal(Principal("publisher", "pub_other"))
    with pytest.raises(Exception, match="you uploaded no model"):
        await client.tasks.ForgetModel(pb.ForgetModelRequest(digest=digest))
    set_principal(Principal("publisher", "pub_1"))
    await client.tasks.ForgetModel(pb.ForgetModelRequest(digest=digest))
    assert digest in stored(service.settings.data_dir)
    await client.start_task(task.id)
    assert (await client.get_work("dev_1")).model_digests == [digest]


@only_sqlite
async def test_links_of_an_unknown_task_are_not_kept(service: ServiceFixture, platform: FakePlatform) -> None:
    client = await service.start()
    task = await client.create(["dev_1"])
    body = {"links": [{"device_a": "dev_1", "device_b": "dev_2", "seconds": 0.5}]}
    async with rest(service, platform, client) as caller:
        assert (await caller.post("/v1/tasks/tsk_nobody/links", json=body)).status_code == 404
        assert not platform.called("ReportLinks")
        assert (await caller.post(f"/v1/tasks/{task.id}/links", json=body)).status_code == 204
        assert len(platform.called("ReportLinks")) == 1


@only_sqlite
async def test_link_reports_and_letter_requests_come_from_joined_devices(
    service: ServiceFixture, platform: FakePlatform
) -> None:
    """An open task may be seen by all; how its rounds go and which links it plans by are its own devices' matter."""
    client = await service.start()
    task = await client.create(["dev_2", "dev_3"], rounds=1)
    await client.start_task(task.id)
    await client.get_work("dev_2")
    body = {"links": [{"device_a": "dev_1", "device_b": "dev_2", "seconds": 0.5}]}
    letters = f"/v1/tasks/{task.id}/rounds/1/letters"
    async with rest(service, platform, client) as caller:
        assert (await caller.get(f"/v1/tasks/{task.id}")).status_code == 200
        refused = [await caller.get(letters), await caller.post(f"/v1/tasks/{task.id}/links", json=body)]
        assert [answer.status_code for answer in refused] == [403, 403]
        assert all("dev_2" not in answer.text for answer in refused)
        assert (await caller.get("/v1/tasks/tsk_nobody/rounds/1/letters")).status_code == 404
        assert not platform.called("ReportLinks")
        # The honest path: who has joined asks and tells, in the open round or not.
        set_principal(Principal("device", "dev_1"))
        await client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id="dev_1", samples=10))
        assert (await caller.get(letters)).json() == {"items": [], "round_state": "open", "gone": []}
        assert (await caller.post(f"/v1/tasks/{task.id}/links", json=body)).status_code == 204


# --- the sweep --------------------------------------------------------------------------------------------------------


class Later(SystemClock):
    """A clock some days ahead: everything stored by now is old."""

    def now(self) -> float:
        return super().now() + 3 * DAY


@asynccontextmanager
async def sweeper(service: ServiceFixture, client: Client, blobs: BlobStore | None = None) -> AsyncIterator[Sweeper]:
    """A sweeper to which everything stored now is three days old."""
    app = client.app
    set_principal(SERVICE)
    yield Sweeper(app.database, app.clients, blobs or service.blobs, Later())


async def test_a_sweep_removes_what_nothing_needs_and_only_that(service: ServiceFixture) -> None:
    """Models, updates of an open round and policies stay; bytes whose row never came go, and what is young stays."""
    client = await service.start()
    task = await client.create(["dev_1", "dev_2"], rounds=1)
    await client.start_task(task.id)
    item = await client.get_work("dev_1")
    await client.deliver(item, "dev_1", [1.0, 2.0, 3.0])
    needed = stored(service.settings.data_dir)
    orphan = await service.blobs.put_bytes(b"an orphan")
    killed = service.settings.data_dir / "blobs" / "staging" / "00ff#1"
    killed.parent.mkdir(exist_ok=True)
    killed.write_bytes(b"half of an upl")
    async with sweeper(service, client) as broom:
        looked = await broom.sweep(DAY, dry_run=True)
        assert (looked.orphans, looked.removed) == (2, 0)
        assert orphan in looked.names
        assert stored(service.settings.data_dir) == needed | {orphan, "00ff#1"}
        set_principal(Principal("admin", "adm_1"))
        real = await client.tasks.SweepBlobs(pb.SweepBlobsRequest(older_than_seconds=DAY))
        assert real.removed == 0  # by the platform's own clock everything is young
        swept = await broom.sweep(DAY, dry_run=False)
        assert (swept.orphans, swept.removed) == (2, 2)
    assert stored(service.settings.data_dir) == needed
    await client.deliver(await client.get_work("dev_2"), "dev_2", [3.0, 2.0, 1.0])
    ended = await client.finished(task.id)
    assert (await client.model(ended.model_digests[0])).tolist() == [2.0, 2.0, 2.0]


async def test_remains_of_failed_sums_are_swept_and_open_sums_are_kept(service: ServiceFixture, tmp_path: Path) -> None:
    client = await service.start()
    devices = [f"dev_{letter}" for letter in "abcd"]
    people = Committee.of(service, client, tmp_path, devices)
    task = await client.create(devices, min_devices=4, parameters=to_struct(SECURE))
    await client.start_task(task.id)
    before = stored(service.settings.data_dir)
    await people.until_work("dev_a")
    for device in devices[:2]:
        await people.deliver(device, [1.0, 2.0, 3.0])
    masked = stored(service.settings.data_dir) - before
    assert len(masked) == 2
    async with sweeper(service, client) as broom:
        assert (await broom.sweep(DAY, dry_run=False)).removed == 0
        set_principal(Principal("publisher", "pub_1"))
        await client.tasks.CancelTask(pb.CancelTaskRequest(task_id=task.id, why="enough"))
        set_principal(SERVICE)

        async def gone() -> bool:
            """The end of a task removes what was its own; what a crash then leaves is the sweep's."""
            await broom.sweep(DAY, dry_run=False)
            return stored(service.settings.data_dir) == before

        await eventually(gone)


@only_sqlite
async def test_a_sweep_works_on_an_object_store_and_spares_what_is_stored_again(service: ServiceFixture) -> None:
    client = await service.start()
    blobs = BlobStore(MemoryStore())
    orphan, again = await blobs.put_bytes(b"an orphan"), await blobs.put_bytes(b"wanted again")
    (listed,) = [page async for page in blobs.every()]
    stale = next(blob for blob in listed if blob.name == again)
    assert not await blobs.remove(stale, unless_after=time.time() - DAY)
    async with sweeper(service, client, blobs) as broom:
        result = await broom.sweep(DAY, dry_run=False)
    assert {result.removed, result.seen} == {2}
    assert set(result.names) == {orphan, again}
    assert [page async for page in blobs.every()] in ([], [[]])


@only_sqlite
async def test_the_weights_of_a_policy_are_not_swept(service: ServiceFixture) -> None:
    client = await service.start()
    retained = await service.blobs.put_bytes(b"weights")
    database = Database(service.settings.database_for("topology"), "topology")
    async with database.writing() as tx:
        await policies.add(
            tx,
            StoredPolicy(
                "pol_1", PolicyLearner.VDN, "0" * 64, PolicyState.READY, 1.0, 0.0, time.time(), "", retained, b"{}"
            ),
        )
    await database.close()
    async with sweeper(service, client) as broom:
        await broom.sweep(DAY, dry_run=False)
    assert retained in stored(service.settings.data_dir)


@only_sqlite
async def test_only_an_admin_sweeps_and_never_what_is_young(service: ServiceFixture) -> None:
    client = await service.start()
    set_principal(Principal("publisher", "pub_1"))
    with pytest.raises(PermissionDenied):
        await client.tasks.SweepBlobs(pb.SweepBlobsRequest(older_than_seconds=DAY, dry_run=True))
    set_principal(Principal("admin", "adm_1"))
    for age in (0.0, 599.0, float("nan")):
        with pytest.raises(InvalidInput, match="at least 600 seconds"):
            await client.tasks.SweepBlobs(pb.SweepBlobsRequest(older_than_seconds=age))


REFERENCES = {
    "aggregation": {"participations", "partials", "models", "uploads", "letters", "masked_updates", "shares"},
    "topology": {"policies"},
}
"""Tables whose digests the sweep heeds."""
NO_BLOB = {"sum_sessions"}
"""Their digest is of a text they hold themselves."""


def test_every_table_that_names_a_blob_is_heeded_by_the_sweep() -> None:
    """A new table with a digest of a blob must be added to `digests_in_use`, or its blobs would be swept."""
    for name, tables in (("aggregation", aggregation_tables), ("topology", topology_tables)):
        naming = {
            table.name
            for table in tables.metadata.tables.values()
            for column in table.columns
            if column.name == "digest" and isinstance(column.type, sa.String) and column.type.length == 64
        }
        assert naming - NO_BLOB == REFERENCES[name]
