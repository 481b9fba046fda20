"""`python -m services.kit.rpc.healthcheck ADDRESS`: exit 0 when that gRPC service is SERVING.

Containers run it every few seconds, so it imports little.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_SECONDS = 10.0


def is_serving(address: str, tls_dir: str) -> bool:
    """Whether the server at `address` answers SERVING in time. tls_dir: as in the service's settings, or empty."""
    with _channel(address, tls_dir) as channel:
        try:
            stub = health_pb2_grpc.HealthStub(channel)
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS)  # type: ignore[attr-defined]  # stubs lack it
        except grpc.RpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def _channel(address: str, tls_dir: str) -> grpc.Channel:
    if not tls_dir or address.startswith("unix:"):
        return grpc.insecure_channel(address)
    ca, key, certificate = ((Path(tls_dir) / name).read_bytes() for name in ("ca.pem", "key.pem", "cert.pem"))
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate))


if __name__ == "__main__":
    sys.exit(0 if is_serving(sys.argv[1], os.environ.get("COTERIE_TLS_DIR", "")) else 1)
