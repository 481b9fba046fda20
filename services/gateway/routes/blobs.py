"""Storage: remove unreferenced blobs and details of old tasks."""

from __future__ import annotations

from coterie.records import BlobSweep, Pruning
from coterie_api.aggregation.v1 import aggregation_pb2
from services.gateway.routes.base import Platform, router_for
from services.gateway.schemas.blobs import NewPruning, NewSweep
from services.gateway.wire.convert import to_proto
from services.gateway.wire.responses import JsonResponse, message_response

SWEEP_SECONDS = 600.0
router = router_for("blobs")


@router.post("/v1/blobs/sweep", response_model=BlobSweep, summary="Remove unreferenced blobs")
async def sweep_blobs(body: NewSweep, platform: Platform) -> JsonResponse:
    """Removes blobs that no task, round, letter, upload or policy refers to and that are old enough, unless `dry_run`
    is true. Safe to repeat."""
    request = to_proto(aggregation_pb2.SweepBlobsRequest, body)
    return message_response(await platform.tasks.SweepBlobs(request, timeout=SWEEP_SECONDS))


@router.post("/v1/tasks/prune", response_model=Pruning, summary="Delete details of tasks that ended long ago")
async def prune_tasks(body: NewPruning, platform: Platform) -> JsonResponse:
    """Deletes participations, event logs, devices' metrics and updates stored for replays, unless `dry_run` is true.
    Tasks, rounds with their metrics, models, payments, privacy charges and the audit log stay. Safe to repeat."""
    request = to_proto(aggregation_pb2.PruneTasksRequest, body)
    return message_response(await platform.tasks.PruneTasks(request, timeout=SWEEP_SECONDS))
