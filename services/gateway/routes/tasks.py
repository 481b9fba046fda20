"""Tasks, their plans, rounds, prices, events, models, contributions and measurements."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from coterie.records import (
    Contribution,
    Evaluation,
    EvaluationAnswer,
    Event,
    Items,
    Measurement,
    Model,
    Page,
    Participation,
    Plan,
    Quote,
    ReplayedRound,
    Round,
    RoundDetail,
    Task,
)
from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.pricing.v1 import pricing_pb2
from coterie_api.topology.v1 import topology_pb2
from services.gateway.access.ownership import require_joined, require_own_task
from services.gateway.access.table import DEVICE
from services.gateway.routes.base import Gateway, Platform, router_for
from services.gateway.schemas.base import (
    MOST_INT32,
    MOST_INT64,
    Cursor,
    DeviceId,
    IdFilter,
    Limit,
    RoundNumber,
    TaskId,
    WaitSeconds,
    WordFilter,
)
from services.gateway.schemas.tasks import Cancellation, Links, ModelMetrics, NewTask, Worths
from services.gateway.usecases.long_polls import MARGIN_SECONDS
from services.gateway.wire.convert import page, to_json, to_proto
from services.gateway.wire.responses import JsonResponse, message_response
from services.kit.rpc.principal import current_principal

START_SECONDS = 60.0
REPLAY_SECONDS = 300.0
ReplayLimit = Annotated[int, Query(ge=1, le=100, description="Maximum number of replayed rounds.")]
Version = Annotated[int, Path(ge=0, le=MOST_INT32, description="0 is the initial model, n the model of round n.")]
router = router_for("tasks")


@router.post("/v1/tasks", status_code=201, response_model=Task, summary="Create a task")
async def create_task(body: NewTask, platform: Platform) -> JsonResponse:
    """In state "created". Idempotent: the same publisher, name and specification return the existing task."""
    request = to_proto(aggregation_pb2.CreateTaskRequest, {"specification": body.model_dump(exclude_none=True)})
    return message_response(await platform.tasks.CreateTask(request, timeout=START_SECONDS), 201)


@router.get("/v1/tasks", response_model=Page[Task], summary="List tasks")
async def list_tasks(
    platform: Platform,
    state: WordFilter = "",
    publisher: IdFilter = "",
    name: WordFilter = "",
    limit: Limit = 100,
    cursor: Cursor = "",
) -> JsonResponse:
    """Newest first. A publisher sees its own tasks, a device those that it may join or is enrolled in. A name is unique
    among the tasks of one publisher."""
    filters = {"state": state, "publisher": publisher, "name": name, "limit": limit, "cursor": cursor}
    request = to_proto(aggregation_pb2.ListTasksRequest, filters)
    return JsonResponse(page(await platform.tasks.ListTasks(request), "tasks"))


@router.get("/v1/tasks/{task_id}", response_model=Task, summary="One task")
async def get_task(task_id: TaskId, platform: Platform) -> JsonResponse:
    """Its specification, state, round and newest models."""
    return message_response(await platform.tasks.GetTask(aggregation_pb2.GetTaskRequest(task_id=task_id)))


@router.post("/v1/tasks/{task_id}/start", response_model=Task, summary="Start a task")
async def start_task(task_id: TaskId, platform: Platform) -> JsonResponse:
    """Needs enough enrolled devices."""
    request = aggregation_pb2.StartTaskRequest(task_id=task_id)
    return message_response(await platform.tasks.StartTask(request, timeout=START_SECONDS))


@router.post("/v1/tasks/{task_id}/cancel", response_model=Task, summary="Cancel a task")
async def cancel_task(task_id: TaskId, body: Cancellation, platform: Platform) -> JsonResponse:
    """Cancels the open round and releases the escrow."""
    request = to_proto(aggregation_pb2.CancelTaskRequest, body, task_id=task_id)
    return message_response(await platform.tasks.CancelTask(request, timeout=START_SECONDS))


@router.get("/v1/tasks/{task_id}/plan", response_model=Plan, summary="A task's plan")
async def get_plan(
    task_id: TaskId,
    platform: Platform,
    version: Annotated[int, Query(ge=0, le=MOST_INT32, description="0 means the newest.")] = 0,
) -> JsonResponse:
    """Which devices exchange updates, and the reason for each assignment."""
    await require_own_task(platform, task_id)
    request = topology_pb2.GetPlanRequest(task_id=task_id, version=version)
    return message_response(await platform.topology.GetPlan(request))


@router.post("/v1/tasks/{task_id}/links", status_code=204, response_class=Response, summary="Report measured links")
async def report_links(task_id: TaskId, body: Links, platform: Platform) -> Response:
    """Measured seconds of transfers between devices; the next plan uses them."""
    await require_joined(platform, task_id)
    await platform.topology.ReportLinks(to_proto(topology_pb2.ReportLinksRequest, body, task_id=task_id))
    return Response(status_code=204)


@router.get("/v1/tasks/{task_id}/rounds", response_model=Page[Round], summary="List a task's rounds")
async def list_rounds(task_id: TaskId, platform: Platform, limit: Limit = 100, cursor: Cursor = "") -> JsonResponse:
    """In order of number."""
    request = aggregation_pb2.ListRoundsRequest(task_id=task_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ListRounds(request), "rounds"))


@router.get("/v1/tasks/{task_id}/rounds/{number}", response_model=RoundDetail, summary="One round")
async def get_round(task_id: TaskId, number: RoundNumber, platform: Platform) -> JsonResponse:
    """With every participant and its outcome."""
    request = aggregation_pb2.GetRoundRequest(task_id=task_id, number=number)
    return message_response(await platform.tasks.GetRound(request))


@router.get("/v1/tasks/{task_id}/rounds/{number}/prices", response_model=Quote, summary="Prices of a round")
async def get_prices(task_id: TaskId, number: RoundNumber, platform: Platform) -> JsonResponse:
    """One offer per participant. A device sees only its own offer, without the solver's details."""
    await require_own_task(platform, task_id)
    quote = await platform.pricing.GetQuote(pricing_pb2.GetQuoteRequest(task_id=task_id, round=number))
    document = to_json(quote)
    for offer in document["offers"]:
        offer["terms"] = offer["terms"] or {}  # always an object
    caller = current_principal()
    if caller.role == DEVICE:
        document["offers"] = [offer for offer in document["offers"] if offer["device_id"] == caller.subject]
        document["details"] = {}
    return JsonResponse(document)


@router.get(
    "/v1/tasks/{task_id}/devices/{device_id}/rounds", response_model=Page[Participation], summary="A device's rounds"
)
async def list_participations(
    task_id: TaskId, device_id: DeviceId, platform: Platform, limit: Limit = 100, cursor: Cursor = ""
) -> JsonResponse:
    """In order of round: the model that it chose (its identity) and the outcome of its update."""
    request = aggregation_pb2.ListParticipationsRequest(
        task_id=task_id, device_id=device_id, limit=limit, cursor=cursor
    )
    return JsonResponse(page(await platform.tasks.ListParticipations(request), "participations"))


@router.get("/v1/tasks/{task_id}/events", response_model=Items[Event], summary="A task's events")
async def list_events(
    request: Request,
    task_id: TaskId,
    gateway: Gateway,
    after: Annotated[int, Query(ge=0, le=MOST_INT64, description="Only events after this number.")] = 0,
    limit: Limit = 100,
    wait: WaitSeconds = 0,
) -> JsonResponse:
    """In order of number; with `wait`, the response comes with the next event or after the time."""
    query = aggregation_pb2.ListEventsRequest(task_id=task_id, after=after, limit=limit, wait_seconds=wait)
    call = gateway.platform.tasks.ListEvents(query, timeout=wait + MARGIN_SECONDS)
    reply = await gateway.long_poller.wait(request, call)
    return JsonResponse({"items": [to_json(event) for event in reply.events]})


@router.get("/v1/tasks/{task_id}/replay", response_model=Page[ReplayedRound], summary="Replay a task")
async def replay_task(
    task_id: TaskId, platform: Platform, limit: ReplayLimit = 20, cursor: Cursor = ""
) -> JsonResponse:
    """Recomputes models from the stored updates, round by round, and compares their bits. A round that differs, or
    whose updates are deleted, says so."""
    request = aggregation_pb2.ReplayTaskRequest(task_id=task_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ReplayTask(request, timeout=REPLAY_SECONDS), "rounds"))


@router.get("/v1/tasks/{task_id}/evaluation", response_model=Evaluation, summary="Models to evaluate")
async def ask_evaluation(request: Request, task_id: TaskId, gateway: Gateway, wait: WaitSeconds = 0) -> JsonResponse:
    """One file of models, stacked along a new first dimension, each made of some of a round's updates; without a digest
    there is nothing to evaluate yet. Download it like any model, and answer."""
    query = aggregation_pb2.GetEvaluationRequest(task_id=task_id, wait_seconds=wait)
    call = gateway.platform.tasks.GetEvaluation(query, timeout=wait + REPLAY_SECONDS)
    return message_response(await gateway.long_poller.wait(request, call))


@router.post(
    "/v1/tasks/{task_id}/rounds/{number}/evaluation",
    response_model=EvaluationAnswer,
    summary="Report the worth of models",
)
async def answer_evaluation(task_id: TaskId, number: RoundNumber, body: Worths, platform: Platform) -> JsonResponse:
    """Returns whether the round's contributions are known. A second answer for the same models changes nothing."""
    request = to_proto(aggregation_pb2.AnswerEvaluationRequest, body, task_id=task_id, round=number)
    return message_response(await platform.tasks.AnswerEvaluation(request, timeout=START_SECONDS))


@router.get("/v1/tasks/{task_id}/contributions", response_model=Page[Contribution], summary="Contributions of devices")
async def list_contributions(
    task_id: TaskId,
    platform: Platform,
    round: Annotated[
        int, Query(ge=0, le=MOST_INT32, description="Only of this round; 0 = the sum over all rounds.")
    ] = 0,
    limit: Limit = 100,
    cursor: Cursor = "",
) -> JsonResponse:
    """Shapley values in units of the publisher's worth, by device; a device sees its own. In clusters a head's value is
    its whole cluster's, because the server sees only their sum."""
    request = aggregation_pb2.ListContributionsRequest(task_id=task_id, round=round, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ListContributions(request), "contributions"))


@router.get("/v1/tasks/{task_id}/models", response_model=Page[Model], summary="A task's model versions")
async def list_models(task_id: TaskId, platform: Platform, limit: Limit = 100, cursor: Cursor = "") -> JsonResponse:
    """By line and version; version 0 is the initial model, n the model of round n."""
    request = aggregation_pb2.ListModelsRequest(task_id=task_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ListModels(request), "models"))


@router.put(
    "/v1/tasks/{task_id}/models/{version}/measurement",
    status_code=204,
    response_class=Response,
    summary="Report a version's metrics",
)
async def report_measurement(task_id: TaskId, version: Version, body: ModelMetrics, platform: Platform) -> Response:
    """A device reports metrics of the newest version without an update; its first report counts. A publisher's
    evaluator reports metrics of any version, which are stored separately."""
    request = to_proto(aggregation_pb2.ReportMeasurementRequest, body, task_id=task_id, version=version)
    await platform.tasks.ReportMeasurement(request)
    return Response(status_code=204)


@router.get(
    "/v1/tasks/{task_id}/models/{version}/measurements",
    response_model=Page[Measurement],
    summary="Devices' metrics of a version",
)
async def list_measurements(
    task_id: TaskId,
    version: Version,
    platform: Platform,
    line: Annotated[int, Query(ge=0, le=MOST_INT32, description="Model line.")] = 0,
    limit: Limit = 100,
    cursor: Cursor = "",
) -> JsonResponse:
    """By device; a device sees its own."""
    request = aggregation_pb2.ListMeasurementsRequest(
        task_id=task_id, version=version, line=line, limit=limit, cursor=cursor
    )
    return JsonResponse(page(await platform.tasks.ListMeasurements(request), "measurements"))
