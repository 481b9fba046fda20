"""Prometheus metrics shared by every service."""

from __future__ import annotations

from prometheus_client import Counter, Histogram, start_http_server

RPC_SECONDS = Histogram(
    "coterie_rpc_seconds",
    "Time a gRPC call took on the server.",
    ["method"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
RPC_TOTAL = Counter("coterie_rpc_total", "gRPC calls answered, by outcome.", ["method", "code"])


def serve(port: int, address: str) -> None:
    """Serves the metrics page on `port`; 0 serves none."""
    if port:
        start_http_server(port, addr=address)
