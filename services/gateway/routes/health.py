"""Liveness, readiness, versions and metrics."""

from __future__ import annotations

from ipaddress import ip_address

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from coterie.records import Live, Ready, Versions
from coterie.version import VERSION, commit
from services.gateway.errors import NotYours
from services.gateway.routes.base import Platform, router_for
from services.gateway.wire.responses import RETRY_AFTER_SECONDS, JsonResponse
from services.kit.observability.latency import LATENCY
from services.kit.rpc.replicas import ReplicaStatus

router = router_for("health")


@router.get("/health/live", response_model=Live, summary="Whether the gateway runs")
async def live() -> JsonResponse:
    """Returns "serving" without calling any service."""
    return JsonResponse({"status": "serving"})


@router.get(
    "/health/ready",
    response_model=Ready,
    summary="Whether the gateway can serve",
    responses={503: {"model": Ready, "description": "A service is away; `services` says which."}},
)
async def ready(platform: Platform) -> JsonResponse:
    """Checks the health of all four services; 503 names those that are away."""
    services = await platform.health()
    is_ready = all(state == "serving" for state in services.values())
    headers = {} if is_ready else {"Retry-After": str(RETRY_AFTER_SECONDS)}
    document = {"status": "serving" if is_ready else "away", "services": services}
    return JsonResponse(document, 200 if is_ready else 503, headers)


@router.get("/v1/versions", response_model=Versions, summary="Version, replicas and latency of every service")
async def versions(platform: Platform) -> JsonResponse:
    """Of this gateway and of each replica of the services; empty for one that is away."""
    build: ReplicaStatus = {"version": VERSION, "commit": commit(), "certificate_ends_at": 0.0}
    own = {"state": "serving", "name": platform.settings.replica, **build, **LATENCY.summary()}
    by_service = {"gateway": [own], **await platform.replicas()}
    return JsonResponse({"services": {name: _build(replicas) for name, replicas in by_service.items()}})


def _build(replicas: list[ReplicaStatus]) -> ReplicaStatus:
    """Summarise a service by its first serving replica; list all replicas."""
    first = next((replica for replica in replicas if replica["state"] == "serving"), replicas[0])
    ends = [replica["certificate_ends_at"] for replica in replicas if replica["certificate_ends_at"]]
    common = {"version": first["version"], "commit": first["commit"], "certificate_ends_at": min(ends, default=0.0)}
    return {**common, "replicas": [{**replica, "calls": int(replica["calls"])} for replica in replicas]}


@router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics, for this machine only",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Counts and times of requests. Answers only callers on loopback that did not come through a proxy; scrapers
    elsewhere use the separate metrics port (COTERIE_METRICS_PORT)."""
    proxied = "x-forwarded-for" in request.headers or "forwarded" in request.headers
    if proxied or request.client is None or not _is_loopback(request.client.host):
        raise NotYours("metrics are served to this machine only; scrape the port set by COTERIE_METRICS_PORT instead")
    return Response(generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
