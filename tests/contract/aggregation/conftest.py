"""A real aggregation server and topology planner over real gRPC, with registry and ledger played by small fakes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load, save

from coterie.records.enums import TaskState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.aggregation.v1 import aggregation_pb2_grpc as rpc
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.pricing.v1 import pricing_pb2_grpc
from coterie_api.trust.v1 import trust_pb2 as trust
from coterie_api.trust.v1 import trust_pb2_grpc
from services.aggregation.app import App
from services.aggregation.settings import AggregationSettings
from services.kit.database.blobs import BlobStore
from services.kit.rpc.channels import open_channel
from services.kit.rpc.enums import number_in, word
from services.kit.rpc.parameters import from_struct, to_struct
from services.kit.rpc.principal import Principal, set_principal
from services.kit.runtime.clock import Clock
from services.kit.runtime.settings import ServiceSettings
from services.topology.app import App as TopologyApp


@dataclass
class Fakes:
    """Calls that the played services received, and what they answer."""

    revoked: set[str] = field(default_factory=set)
    interactions: dict[str, trust.Interaction] = field(default_factory=dict)
    settled: dict[tuple[str, int], pricing.SettleRoundRequest] = field(default_factory=dict)
    settle_calls: int = 0
    released: set[str] = field(default_factory=set)
    exhausted_at: int = 0
    trust: dict[tuple[str, str], float] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    keys: dict[str, bytes] = field(default_factory=dict)
    last_seen_at: float = 0.0
    places: dict[str, float] = field(default_factory=dict)


class Registry(trust_pb2_grpc.RegistryServicer):
    def __init__(self, fakes: Fakes) -> None:
        self.fakes = fakes

    async def GetDevices(self, request: trust.GetDevicesRequest, context: Any) -> trust.GetDevicesReply:
        return trust.GetDevicesReply(
            devices=[
                trust.Device(
                    id=d,
                    owner_id=self.fakes.owners.get(d, "own_1"),
                    signing_key=self.fakes.keys.get(d, b""),
                    last_seen_at=self.fakes.last_seen_at,
                    location=trust.Location(x_metres=self.fakes.places[d]) if d in self.fakes.places else None,
                    state=words.DEVICE_STATE_REVOKED if d in self.fakes.revoked else words.DEVICE_STATE_ACTIVE,
                )
                for d in request.device_ids
                if d not in self.fakes.unknown
            ]
        )


class Trust(trust_pb2_grpc.TrustServicer):
    def __init__(self, fakes: Fakes) -> None:
        self.fakes = fakes

    async def GetMatrix(self, request: trust.GetMatrixRequest, context: Any) -> trust.TrustMatrix:
        place = {device: i for i, device in enumerate(request.device_ids)}
        ties = sorted((place[a], place[b], e) for (a, b), e in self.fakes.trust.items() if {a, b} <= place.keys())
        return trust.TrustMatrix(
            rows=[a for a, _, _ in ties],
            columns=[b for _, b, _ in ties],
            trust=[v for *_, v in ties],
            direct=[v for *_, v in ties],
        )

    async def RecordInteractions(self, request: trust.RecordInteractionsRequest, context: Any) -> Any:
        self.fakes.interactions |= {interaction.id: interaction for interaction in request.interactions}
        return trust.RecordInteractionsReply(recorded=len(request.interactions))


class Pricing(pricing_pb2_grpc.PricingServicer):
    async def QuoteRound(self, request: pricing.QuoteRoundRequest, context: Any) -> pricing.Quote:
        return pricing.Quote(task_id=request.task_id, round=request.round, status=words.QUOTE_STATUS_OK)

    async def CheckParameters(self, request: pricing.CheckParametersRequest, context: Any) -> Any:
        completed = from_struct(request.parameters)
        own = {"round_microcredits": 0} | completed.get("pricing", {})
        return pricing.CheckParametersReply(parameters=to_struct(completed | {"pricing": own}))


class Ledger(pricing_pb2_grpc.LedgerServicer):
    def __init__(self, fakes: Fakes) -> None:
        self.fakes = fakes

    async def OpenEscrow(self, request: pricing.OpenEscrowRequest, context: Any) -> pricing.Account:
        return pricing.Account(id=f"escrow:{request.task_id}")

    async def SettleRound(self, request: pricing.SettleRoundRequest, context: Any) -> pricing.Settlement:
        self.fakes.settle_calls += 1
        self.fakes.settled[request.task_id, request.round] = request
        return pricing.Settlement(exhausted=request.round == self.fakes.exhausted_at)

    async def ReleaseEscrow(self, request: pricing.ReleaseEscrowRequest, context: Any) -> pricing.Account:
        self.fakes.released.add(request.task_id)
        return pricing.Account(id=f"escrow:{request.task_id}")


@dataclass
class ServiceFixture:
    """The running servers and everything a test needs to use them."""

    settings: AggregationSettings
    fakes: Fakes
    blobs: BlobStore
    apps: list[App] = field(default_factory=list)
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    async def start(self, replica: str = "one", machine: Clock | None = None) -> Client:
        """Starts an aggregation server (once more: another replica, or a restart) and returns its client."""
        app = App(self.settings.model_copy(update={"replica": replica}), "127.0.0.1:0", machine)
        await app.start()
        self.apps.append(app)
        channel = open_channel(self.settings, f"127.0.0.1:{app.server.port}")
        self.channels.append(channel)
        return Client(self, app, channel)


class Client:
    """Calls one aggregation server as the principal that the test sets."""

    def __init__(self, service: ServiceFixture, app: App, channel: grpc.aio.Channel) -> None:
        self.service, self.app = service, app
        self.tasks, self.work, self.sums = rpc.TasksStub(channel), rpc.WorkStub(channel), rpc.SumsStub(channel)

    async def upload_model(self, values: npt.NDArray[np.float32]) -> str:
        set_principal(Principal("publisher", "pub_1"))
        digest = await self.service.blobs.put_bytes(save({"w": values}))
        await self.tasks.RegisterModel(pb.RegisterModelRequest(digest=digest))
        return digest

    async def create(self, devices: list[str], samples: int = 10, **changes: Any) -> pb.Task:
        """A created task of one tensor w = zeros(3) with these devices enrolled; words of its specification as text."""
        digest = await self.upload_model(np.zeros(3, np.float32))
        values: dict[str, Any] = {
            "name": "t",
            "preset": "fedavg",
            "model_digests": [digest],
            "rounds": 2,
            "min_devices": 1,
            "quorum": 1.0,
            "round_seconds": 120.0,
        } | changes
        for name, kind in (("mode", "RoundMode"), ("join_by", "JoinBy")):
            if isinstance(values.get(name), str):
                values[name] = number_in(kind, values[name])
        task = await self.tasks.CreateTask(pb.CreateTaskRequest(specification=pb.TaskSpecification(**values)))
        for device in devices:
            set_principal(Principal("device", device))
            await self.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id=device, samples=samples))
        return task

    async def start_task(self, task_id: str) -> pb.Task:
        set_principal(Principal("publisher", "pub_1"))
        return await self.tasks.StartTask(pb.StartTaskRequest(task_id=task_id))

    async def get_work(self, device: str, wait: float = 15.0) -> pb.WorkItem:
        set_principal(Principal("device", device))
        reply = await self.work.GetWork(pb.GetWorkRequest(device_id=device, wait_seconds=wait))
        assert reply.items, f"no work for {device}"
        return reply.items[0]

    async def deliver(
        self, item: pb.WorkItem, device: str, values: list[float], *, weight: float = 10.0, **changes: Any
    ) -> pb.SubmitUpdateReply:
        set_principal(Principal("device", device))
        data = save({"w": np.array(values, np.float32)})
        digest = await self.service.blobs.put_bytes(data)
        assert digest == hashlib.sha256(data).hexdigest()
        request: dict[str, Any] = {
            "task_id": item.task_id,
            "round": item.round,
            "device_id": device,
            "digest": digest,
            "size_bytes": len(data),
            "form": words.FORM_MEAN,
            "weight": weight,
            "metrics": {"accuracy": 0.5},
            "public_metrics": True,
        } | changes
        return await self.work.SubmitUpdate(pb.SubmitUpdateRequest(**request))

    async def get_task(self, task_id: str) -> pb.Task:
        set_principal(Principal("publisher", "pub_1"))
        return await self.tasks.GetTask(pb.GetTaskRequest(task_id=task_id))

    async def finished(self, task_id: str) -> pb.Task:
        """Waits for the task's end through its event log."""
        after = 0
        for _ in range(200):
            task = await self.get_task(task_id)
            if word(TaskState, task.state).has_ended:
                return task
            reply = await self.tasks.ListEvents(pb.ListEventsRequest(task_id=task_id, after=after, wait_seconds=0.5))
            after = max([after, *(event.number for event in reply.events)])
        raise AssertionError(f"task did not end: {task}")

    async def events(self, task_id: str) -> list[pb.Event]:
        set_principal(Principal("admin", "adm_1"))
        return list((await self.tasks.ListEvents(pb.ListEventsRequest(task_id=task_id))).events)

    async def model(self, digest: str) -> npt.NDArray[np.float32]:
        data = b"".join([piece async for piece in self.service.blobs.stream(digest)])
        values: npt.NDArray[np.float32] = load(data)["w"]
        return values


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 90.0) -> None:
    """Waits until `condition` holds."""
    import asyncio

    for _ in range(math.ceil(seconds / 0.02)):
        if await condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the condition never held")


@pytest.fixture
async def service(settings: ServiceSettings, tmp_path: Path, compiled_planners: None) -> AsyncIterator[ServiceFixture]:
    fakes = Fakes()
    trust_server, pricing_server = grpc.aio.server(), grpc.aio.server()
    trust_pb2_grpc.add_RegistryServicer_to_server(Registry(fakes), trust_server)  # type: ignore[abstract]
    trust_pb2_grpc.add_TrustServicer_to_server(Trust(fakes), trust_server)  # type: ignore[abstract]
    pricing_pb2_grpc.add_PricingServicer_to_server(Pricing(), pricing_server)  # type: ignore[abstract]
    pricing_pb2_grpc.add_LedgerServicer_to_server(Ledger(fakes), pricing_server)  # type: ignore[abstract]
    trust_port = trust_server.add_insecure_port("127.0.0.1:0")
    pricing_port = pricing_server.add_insecure_port("127.0.0.1:0")
    await trust_server.start()
    await pricing_server.start()
    base = AggregationSettings(
        data_dir=tmp_path,
        database_url=settings.database_url,
        trust_address=f"127.0.0.1:{trust_port}",
        pricing_address=f"127.0.0.1:{pricing_port}",
        drain_seconds=0.2,
        insecure=True,
    )
    topology = TopologyApp(base, "127.0.0.1:0")
    await topology.start()
    service = ServiceFixture(
        base.model_copy(update={"topology_address": f"127.0.0.1:{topology.server.port}"}),
        fakes,
        BlobStore.in_folder(tmp_path / "blobs"),
    )
    yield service
    for channel in service.channels:
        await channel.close()
    for app in service.apps:
        await app.stop()
    await topology.stop()
    await trust_server.stop(None)
    await pricing_server.stop(None)
