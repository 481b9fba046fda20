"""RPC batching: few RPCs, one result per call, each its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.aggregation.v1 import aggregation_pb2_grpc as rpc
from coterie_api.rpc_batching.v1 import rpc_batching_pb2, rpc_batching_pb2_grpc
from services.kit import errors
from services.kit.rpc import sockets
from services.kit.rpc.channels import open_channel
from services.kit.rpc.principal import Principal, acting_as, current_principal
from services.kit.rpc.rpc_batching import CALLS_PER_BATCH, RUN
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings

NAME = pb.DESCRIPTOR.services_by_name["Work"].full_name
METHOD = f"/{NAME}/GetWork"


class OddWork(errors.Conflict):
    pass


class DutyIndex(rpc.WorkServicer):
    """Says who asked, refuses "dev_odd", breaks at "dev_broken", and lets "dev_late" wait until the door opens."""

    def __init__(self) -> None:
        self.door = asyncio.Event()
        self.given_up: list[str] = []
        self.waiting = 0

    async def GetWork(self, request: pb.GetWorkRequest, context: Any) -> pb.GetWorkReply:
        device = current_principal().subject
        if device == "dev_odd":
            raise OddWork("odd; make it even", details={"device": device})
        if device == "dev_broken":
            raise RuntimeError("secret inside")
        if device.startswith("dev_late"):
            self.waiting += 1
            try:
                await self.door.wait()
            except asyncio.CancelledError:
                self.given_up.append(device)
                raise
        return pb.GetWorkReply(items=[pb.WorkItem(task_id=f"{device} {request.device_id}")])


class ServiceFixture:
    """A server that batches, and the sizes of the batches it received."""

    def __init__(self, folder: Path) -> None:
        self.desk = DutyIndex()  # type: ignore[abstract]
        self.address = sockets.address(folder, "aggregation")
        self.batches: list[int] = []
        self.server = Server(ServiceSettings(), self.address)
        self.server.add(rpc.add_WorkServicer_to_server, self.desk, NAME)

    async def ask(self, stub: rpc.WorkAsyncStub, device: str) -> str:
        with acting_as(Principal("device", device, "own_1")):
            reply = await stub.GetWork(pb.GetWorkRequest(device_id=device), timeout=30.0)
        return reply.items[0].task_id


@pytest.fixture
async def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServiceFixture]:
    from services.kit.rpc.rpc_batching import RpcBatchingServicer

    service, run = ServiceFixture(tmp_path), RpcBatchingServicer.Run

    async def counted(self: RpcBatchingServicer, request: rpc_batching_pb2.Batch, context: Any) -> Any:
        service.batches.append(len(request.calls))
        async for answers in run(self, request, context):
            yield answers

    monkeypatch.setattr(RpcBatchingServicer, "Run", counted)
    await service.server.start()
    yield service
    await service.server.stop()


@pytest.fixture
async def stub(service: ServiceFixture) -> AsyncIterator[rpc.WorkAsyncStub]:
    channel = open_channel(ServiceSettings(), service.address)
    yield rpc.WorkStub(channel)
    await channel.close()


async def until(condition: Any) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition never held")


async def test_thousand_simultaneous_calls_are_batched_and_each_is_answered(
    service: ServiceFixture, stub: rpc.WorkAsyncStub
) -> None:
    devices = [f"dev_{number}" for number in range(1000)]
    replies = await asyncio.gather(*(service.ask(stub, device) for device in devices))
    assert replies == [f"{device} {device}" for device in devices]
    assert sum(service.batches) == 1000
    assert len(service.batches) <= 1000 // CALLS_PER_BATCH + 2


async def test_a_refusal_and_a_fault_reach_only_their_own_caller(
    service: ServiceFixture, stub: rpc.WorkAsyncStub
) -> None:
    asked = [service.ask(stub, device) for device in ("dev_a", "dev_odd", "dev_broken", "dev_b")]
    a, odd, broken, b = await asyncio.gather(*asked, return_exceptions=True)
    assert (a, b) == ("dev_a dev_a", "dev_b dev_b")
    assert isinstance(odd, errors.Conflict)
    assert (odd.reason, odd.message, odd.details) == ("odd_work", "odd; make it even", {"device": "dev_odd"})
    assert isinstance(broken, errors.CoterieError)
    assert "secret" not in broken.message


async def test_who_is_ready_is_answered_while_others_wait(service: ServiceFixture, stub: rpc.WorkAsyncStub) -> None:
    late = asyncio.create_task(service.ask(stub, "dev_late"))
    assert await service.ask(stub, "dev_a") == "dev_a dev_a"
    assert not late.done()
    service.desk.door.set()
    assert await late == "dev_late dev_late"


async def test_only_calls_whose_callers_have_gone_are_cancelled(
    service: ServiceFixture, stub: rpc.WorkAsyncStub
) -> None:
    gone = [asyncio.create_task(service.ask(stub, f"dev_late{number}")) for number in range(2)]
    await until(lambda: service.desk.waiting == 2)
    gone[0].cancel()
    assert await service.ask(stub, "dev_a") == "dev_a dev_a"
    assert service.desk.given_up == []
    gone[1].cancel()
    await until(lambda: sorted(service.desk.given_up) == ["dev_late0", "dev_late1"])


async def test_a_server_that_ends_fails_those_that_wait_so_that_they_ask_again(
    service: ServiceFixture, stub: rpc.WorkAsyncStub
) -> None:
    late = asyncio.create_task(service.ask(stub, "dev_late"))
    await until(lambda: service.desk.waiting == 1)
    await service.server._server.stop(0.0)
    with pytest.raises(errors.Unavailable):
        await late


async def test_server_without_batching_receives_each_call_by_itself(tmp_path: Path) -> None:
    server, address = grpc.aio.server(), sockets.address(tmp_path, "aggregation")
    sockets.claim(address)
    rpc.add_WorkServicer_to_server(Answering(), server)  # type: ignore[abstract]
    server.add_insecure_port(address)
    await server.start()
    channel = open_channel(ServiceSettings(), address)
    stub: Any = rpc.WorkStub(channel)
    replies = await asyncio.gather(*(stub.GetWork(pb.GetWorkRequest(device_id=f"dev_{n}")) for n in range(5)))
    assert [reply.items[0].task_id for reply in replies] == [f"dev_{n}" for n in range(5)]
    assert (await stub.GetWork(pb.GetWorkRequest(device_id="dev_x"))).items[0].task_id == "dev_x"
    await channel.close()
    await server.stop(None)


class Answering(rpc.WorkServicer):
    async def GetWork(self, request: pb.GetWorkRequest, context: Any) -> pb.GetWorkReply:
        return pb.GetWorkReply(items=[pb.WorkItem(task_id=request.device_id)])


async def run_batch(
    service: ServiceFixture, batch: rpc_batching_pb2.Batch, timeout: float | None
) -> list[rpc_batching_pb2.Result]:
    """Results of a batch made by hand."""
    async with grpc.aio.insecure_channel(service.address) as channel:
        stub: Any = rpc_batching_pb2_grpc.RpcBatchingStub(channel)
        return [answer async for some in stub.Run(batch, timeout=timeout) for answer in some.results]


@pytest.mark.parametrize(
    ("metadata", "timeout", "status"),
    [
        ({}, 20.0, grpc.StatusCode.UNAUTHENTICATED),
        ({"x-coterie-role": "emperor"}, 20.0, grpc.StatusCode.UNAUTHENTICATED),
        ({"x-coterie-role": "anonymous"}, 20.0, grpc.StatusCode.UNAUTHENTICATED),
        ({"x-coterie-role": "device"}, None, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_call_in_a_batch_passes_the_same_interceptor(
    service: ServiceFixture, metadata: dict[str, str], timeout: float | None, status: grpc.StatusCode
) -> None:
    call = rpc_batching_pb2.Call(request=pb.GetWorkRequest(device_id="dev_a").SerializeToString(), metadata=metadata)
    (answer,) = await run_batch(service, rpc_batching_pb2.Batch(method=METHOD, calls=[call]), timeout)
    assert answer.status == status.value[0]
    assert answer.reply == b""


@pytest.mark.parametrize("method", [RUN, f"/{NAME}/DeclineWork", "/grpc.health.v1.Health/Check", "", "/unknown/method"])
async def test_batch_runs_only_batched_methods(service: ServiceFixture, method: str) -> None:
    call = rpc_batching_pb2.Call(metadata={"x-coterie-role": "admin"})
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await run_batch(service, rpc_batching_pb2.Batch(method=method, calls=[call]), 20.0)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_invalid_bytes_are_refused_and_delay_no_other_call(service: ServiceFixture) -> None:
    metadata = {"x-coterie-role": "device", "x-coterie-subject": "dev_a"}
    sound = pb.GetWorkRequest(device_id="dev_a").SerializeToString()
    calls = [rpc_batching_pb2.Call(request=item, metadata=metadata) for item in (b"\xff\xff\xff", sound)]
    answers = await run_batch(service, rpc_batching_pb2.Batch(method=METHOD, calls=calls), 20.0)
    assert {answer.index: answer.status for answer in answers} == {0: grpc.StatusCode.INVALID_ARGUMENT.value[0], 1: 0}
