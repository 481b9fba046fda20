"""The gRPC manners every service has: errors, deadlines, identity, certificates, drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from coterie_cli.certificates import make_certificates
from services.kit import errors
from services.kit.observability import traces
from services.kit.rpc import grpc_errors, sockets
from services.kit.rpc.channels import open_channel
from services.kit.rpc.healthcheck import is_serving
from services.kit.rpc.principal import Principal, current_principal, current_request_id, set_principal, set_request_id
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings

NAME = pb.DESCRIPTOR.services_by_name["Topology"].full_name


class OddCell(errors.Conflict):
    pass


class Odd(rpc.TopologyServicer):
    """Answers by cell id: raises, breaks, tells who asks, or takes its time."""

    async def PutCell(self, request: pb.Cell, context: Any) -> pb.Cell:
        if request.id == "raise":
            raise OddCell("odd; make it even", details={"cell": "7"})
        if request.id.startswith("kind "):
            kind = KINDS[int(request.id.removeprefix("kind "))]
            raise type("NamedError", (kind,), {})("refused")
        if request.id == "break":
            raise RuntimeError("secret inside")
        if request.id == "slow":
            await asyncio.sleep(0.3)
        caller = current_principal()
        return pb.Cell(id=f"{caller.role} {caller.subject} {caller.owner_id} {current_request_id()}")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(ServiceSettings(), sockets.address(tmp_path, "topology"))
    server.add(rpc.add_TopologyServicer_to_server, Odd(), NAME)  # type: ignore[abstract]
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def stub(server: Server, tmp_path: Path) -> AsyncIterator[rpc.TopologyAsyncStub]:
    channel = open_channel(ServiceSettings(), sockets.address(tmp_path, "topology"))
    yield rpc.TopologyStub(channel)
    await channel.close()


async def test_a_named_error_arrives_with_kind_reason_message_and_details(stub: rpc.TopologyAsyncStub) -> None:
    with pytest.raises(errors.Conflict) as caught:
        await stub.PutCell(pb.Cell(id="raise"))
    assert (caught.value.reason, caught.value.message) == ("odd_cell", "odd; make it even")
    assert caught.value.details == {"cell": "7"}


async def test_an_unexpected_fault_tells_nothing_of_its_inside(stub: rpc.TopologyAsyncStub) -> None:
    with pytest.raises(grpc_errors.UpstreamFault) as caught:
        await stub.PutCell(pb.Cell(id="break"))
    assert "secret" not in caught.value.message


async def test_caller_and_request_id_travel_along(stub: rpc.TopologyAsyncStub) -> None:
    set_principal(Principal("device", "dev_1", "own_1"))
    set_request_id("abc-123")
    assert (await stub.PutCell(pb.Cell(id="tell"))).id == "device dev_1 own_1 abc-123"


async def test_a_call_without_a_deadline_is_refused(server: Server, tmp_path: Path) -> None:
    async with grpc.aio.insecure_channel(sockets.address(tmp_path, "topology")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rpc.TopologyStub(channel).PutCell(pb.Cell(id="tell"), metadata=(("x-coterie-role", "admin"),))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "deadline" in (caught.value.details() or "")


async def test_an_absent_service_may_be_asked_again(tmp_path: Path) -> None:
    channel = open_channel(ServiceSettings(), sockets.address(tmp_path, "topology"))
    with pytest.raises(errors.Unavailable):
        await rpc.TopologyStub(channel).PutCell(pb.Cell(id="tell"), timeout=2.0)
    await channel.close()


async def test_stopping_lets_an_open_call_end(server: Server, stub: rpc.TopologyAsyncStub) -> None:
    slow = asyncio.ensure_future(stub.PutCell(pb.Cell(id="slow")))
    await asyncio.sleep(0.1)
    await server.stop()
    assert (await slow).id.startswith("service platform")


KINDS = list(grpc_errors.STATUS_OF_KIND)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_error_arrives_as_itself(
    stub: rpc.TopologyAsyncStub, kind: type[errors.CoterieError]
) -> None:
    with pytest.raises(errors.CoterieError) as caught:
        await stub.PutCell(pb.Cell(id=f"kind {KINDS.index(kind)}"))
    assert type(caught.value) is kind
    assert caught.value.reason == "named_error"


def test_refusals_are_no_faults_in_traces() -> None:
    """Only a service that is away counts as a fault; a refused request does not."""
    statuses = {kind: status.name for kind, status in grpc_errors.STATUS_OF_KIND.items()}
    assert {kind for kind, status in statuses.items() if traces.is_fault(status)} == {errors.Unavailable}


def test_every_kind_has_a_status() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CoterieError)}
    kinds -= {errors.CoterieError}
    assert kinds == set(grpc_errors.STATUS_OF_KIND)


async def test_mutual_tls_lets_only_holders_of_a_certificate_in(tmp_path: Path) -> None:
    folders = make_certificates(tmp_path / "certs", {"topology": ["localhost"], "gateway": ["localhost"]}, 30)
    server = Server(ServiceSettings(tls_dir=folders["topology"]), "127.0.0.1:0")
    server.add(rpc.add_TopologyServicer_to_server, Odd(), NAME)  # type: ignore[abstract]
    await server.start()
    address = f"localhost:{server.port}"
    friend = open_channel(ServiceSettings(tls_dir=folders["gateway"]), address)
    assert (await rpc.TopologyStub(friend).PutCell(pb.Cell(id="tell"))).id
    stranger = grpc.ssl_channel_credentials((folders["gateway"] / "ca.pem").read_bytes())
    async with grpc.aio.secure_channel(address, stranger) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await rpc.TopologyStub(channel).PutCell(pb.Cell(id="tell"), timeout=2.0)
    assert await asyncio.to_thread(is_serving, address, str(folders["gateway"]))
    await friend.close()
    await server.stop()


class Named(rpc.TopologyServicer):
    """Answers with its own name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def PutCell(self, request: pb.Cell, context: Any) -> pb.Cell:
        return pb.Cell(id=self.name)


async def test_replicas_behind_one_name_take_turns_until_one_is_gone() -> None:
    settings, servers = ServiceSettings(insecure=True, drain_seconds=0.1), []
    for name in ("one", "two"):
        server = Server(settings, "127.0.0.1:0")
        server.add(rpc.add_TopologyServicer_to_server, Named(name), NAME)  # type: ignore[abstract]
        await server.start()
        servers.append(server)
    ports = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    channel = open_channel(settings, f"ipv4:{ports}")
    stub = rpc.TopologyStub(channel)
    set_principal(Principal("admin", "adm_1"))

    async def answers() -> list[str]:
        return [(await stub.PutCell(pb.Cell(), timeout=30.0)).id for _ in range(6)]

    seen: set[str] = set()
    while len(seen) < 2:  # the second connection opens a little later
        seen |= set(await answers())
    await servers.pop().stop()
    left: list[str] = []
    while left != ["one"] * 6:
        with suppress(errors.Unavailable):
            left = await answers()
    await channel.close()
    await servers.pop().stop()
