"""The replicas of a service: each is asked by itself whether it serves and what it says of itself."""

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
Told = dict[str, Any]
Resolve = Callable[[str, int], Awaitable[list[str]]]


async def addresses_of(host: str, port: int) -> list[str]:
    """Every address that a name stands for now, in order; none when nobody knows the name."""
    try:
        result = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(place[0]) for *_, place in result})


async def replicas_at(
    settings: ServiceSettings, address: str, channel: grpc.aio.Channel, resolve: Resolve = addresses_of
) -> list[Told]:
    """What each replica behind `address` says; the one of a socket, or of a name with one address, over `channel`."""
    if sockets.is_socket(address):
        return [await ask(channel)]
    host, _, port = address.rpartition(":")
    places = await resolve(host, int(port))
    if len(places) < 2:
        return [await ask(channel)]
    return list(await asyncio.gather(*(_ask_at(settings, host, place, port) for place in places)))


async def _ask_at(settings: ServiceSettings, host: str, place: str, port: str) -> Told:
    """Asks one address, which must have the certificate of the name."""
    channel = open_channel(settings, f"[{place}]:{port}" if ":" in place else f"{place}:{port}", host)
    try:
        return await ask(channel)
    finally:
        await channel.close()


async def ask(channel: grpc.aio.Channel) -> Told:
    """Whether who answers serves ("serving" or "away"), and what it says of itself: all empty when it is away."""
    told: Told = {"state": "away", "name": "", "version": "", "commit": ""}
    told |= dict.fromkeys(("certificate_ends_at", "calls", "p50_seconds", "p95_seconds"), 0.0)
    try:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # the stub's type knows no methods
        call = stub.Check(health_pb2.HealthCheckRequest(), timeout=HEALTH_SECONDS)
        reply = await call
        metadata = dict(await call.initial_metadata())
    except CoterieError:
        return told
    said = {name: metadata.get(f"coterie-{name.replace('_', '-')}") for name in told}
    told |= {name: type(told[name])(value) for name, value in said.items() if value is not None}
    return told | {"state": "serving" if reply.status == health_pb2.HealthCheckResponse.SERVING else "away"}
