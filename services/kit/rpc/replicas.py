"""Status of every replica of a service, from its health check."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.kit.errors import CoterieError
from services.kit.rpc import sockets
from services.kit.rpc.channels import open_channel
from services.kit.runtime.settings import ServiceSettings

HEALTH_SECONDS = 2.0
ReplicaStatus = dict[str, Any]
Resolve = Callable[[str, int], Awaitable[list[str]]]


async def addresses_of(host: str, port: int) -> list[str]:
    """Resolve a name to its sorted addresses; none for an unknown name."""
    try:
        result = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(address[0]) for *_, address in result})


async def replicas_at(
    settings: ServiceSettings, address: str, channel: grpc.aio.Channel, resolve: Resolve = addresses_of
) -> list[ReplicaStatus]:
    """Return the status of each replica behind `address`; `channel` is used if there is only one."""
    if sockets.is_socket(address):
        return [await ask(channel)]
    host, _, port = address.rpartition(":")
    hosts = await resolve(host, int(port))
    if len(hosts) < 2:
        return [await ask(channel)]
    return list(await asyncio.gather(*(_ask_at(settings, host, address, port) for address in hosts)))


async def _ask_at(settings: ServiceSettings, name: str, host: str, port: str) -> ReplicaStatus:
    """Ask one address, whose certificate must have the service's name."""
    channel = open_channel(settings, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", name)
    try:
        return await ask(channel)
    finally:
        await channel.close()


async def ask(channel: grpc.aio.Channel) -> ReplicaStatus:
    """Return `state` ("serving" or "away") and what the replica reports; all other fields are empty when it is away."""
    status: ReplicaStatus = {"state": "away", "name": "", "version": "", "commit": ""}
    status |= dict.fromkeys(("certificate_ends_at", "calls", "p50_seconds", "p95_seconds"), 0.0)
    try:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # the stub's type knows no methods
        call = stub.Check(health_pb2.HealthCheckRequest(), timeout=HEALTH_SECONDS)
        reply = await call
        metadata = dict(await call.initial_metadata())
    except CoterieError:
        return status
    reported = {name: metadata.get(f"coterie-{name.replace('_', '-')}") for name in status}
    status |= {name: type(status[name])(value) for name, value in reported.items() if value is not None}
    return status | {"state": "serving" if reply.status == health_pb2.HealthCheckResponse.SERVING else "away"}
