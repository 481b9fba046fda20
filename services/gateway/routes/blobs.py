"""Stored bytes: what nobody needs is found and removed."""

from __future__ import annotations

from coterie.records import BlobSweep
from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.routes.base import Platform, routes_for
from services.gateway.schemas.blobs import NewSweep
from services.gateway.wire.answers import Json, answer
from services.gateway.wire.convert import to_proto

SWEEP_SECONDS = 600.0
routes = routes_for("blobs")


@routes.post("/v1/blobs/sweep", response_model=BlobSweep, summary="Remove bytes that nothing refers to")
async def sweep_blobs(body: NewSweep, platform: Platform) -> Json:
    """Looks at everything stored; what no task, round, letter, upload or policy needs and is old enough goes, unless
    `dry_run` is true. Safe to repeat."""
    request = to_proto(aggregation_pb2.SweepBlobsRequest, body)
    return answer(await platform.tasks.SweepBlobs(request, timeout=SWEEP_SECONDS))
