"""`python -m services.kit.healthcheck HOST:PORT`: exit 0 when the gRPC service there says SERVING."""

from __future__ import annotations

import asyncio
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.kit.server import read_tls
from services.kit.settings import ServiceSettings

TIMEOUT_SECONDS = 4.0


async def is_serving(settings: ServiceSettings, address: str) -> bool:
    """Whether the server at `address` answers SERVING in time."""
    if settings.tls_dir is None:
        channel = grpc.aio.insecure_channel(address)
    else:
        channel = grpc.aio.secure_channel(address, read_tls(settings.tls_dir))
    async with channel:
        try:
            reply = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS
            )
        except grpc.aio.AioRpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(is_serving(ServiceSettings(), sys.argv[1])) else 1)
