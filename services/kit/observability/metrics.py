"""Prometheus metrics shared by every service."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, Info, start_http_server

from coterie.version import VERSION, commit

RPC_SECONDS = Histogram(
    "coterie_rpc_seconds",
    "Duration of a gRPC call on the server.",
    ["method"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
RPC_TOTAL = Counter("coterie_rpc_total", "gRPC calls answered, by outcome.", ["method", "code"])


EVENTS_TOTAL = Counter(
    "coterie_events_total", "Events of tasks, rounds and devices, by kind (as in a task's event log).", ["kind"]
)
ROUNDS = Gauge(
    "coterie_rounds", "Running tasks, by the state of their round; all replicas report the same number.", ["state"]
)
ROUND_SECONDS = Histogram(
    "coterie_round_seconds",
    "Time from a round's opening to its closing.",
    buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000),
)
UPDATES_TOTAL = Counter(
    "coterie_updates_total", "Submitted updates: accepted, repeated, or the reason of the refusal.", ["outcome"]
)
UPDATE_WAIT_SECONDS = Histogram(
    "coterie_update_wait_seconds",
    "Time from an update's arrival at aggregation until it is recorded.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)
STEP_SECONDS = Histogram(
    "coterie_step_seconds",
    "Duration of one step of a task in the conductor.",
    buckets=(0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 100),
)
STEP_FAULTS_TOTAL = Counter("coterie_step_faults_total", "Failed and retried steps of tasks, by reason.", ["reason"])
CHARGES_TOTAL = Counter("coterie_privacy_charges_total", "Privacy charges recorded.", ["mechanism", "unit"])
RHO_TOTAL = Counter("coterie_privacy_rho_total", "Zero-concentrated budget charged, over all devices.", ["unit"])
MONEY_TOTAL = Counter("coterie_money_microcredits_total", "Micro-credits moved, by kind of ledger entry.", ["kind"])
BUILD = Info("coterie_build", "Version and commit of this process.")


def serve(port: int, address: str) -> None:
    """Serve the metrics page on `port`; 0 serves none."""
    BUILD.info({"version": VERSION, "commit": commit()})
    if port:
        start_http_server(port, addr=address)
