"""Tasks: create, watch, steer; their plans, rounds, events, models, prices."""

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
from services.gateway.schemas.tasks import Cancellation, Figures, Links, NewTask, Worths
from services.gateway.usecases.long_polls import MARGIN_SECONDS
from services.gateway.wire.convert import page, to_json, to_proto
from services.gateway.wire.responses import JsonResponse, message_response
from services.kit.rpc.principal import current_principal

START_SECONDS = 60.0
REPLAY_SECONDS = 300.0
ReplayLimit = Annotated[int, Query(ge=1, le=100, description="Rounds made again in one answer.")]
Version = Annotated[int, Path(ge=0, le=MOST_INT32, description="0 is the initial model, n the one made by round n.")]
router = router_for("tasks")


@router.post("/v1/tasks", status_code=201, response_model=Task, summary="Create a task")
async def create_task(body: NewTask, platform: Platform) -> JsonResponse:
    """In state "created". Idempotent: the same publisher, name and specification return the task that exists."""
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
    """Newest first. A publisher sees its own, a device those it may join or is enrolled in. A name is unique among a
    publisher's tasks; those of several publishers may have the same."""
    asked = {"state": state, "publisher": publisher, "name": name, "limit": limit, "cursor": cursor}
    request = to_proto(aggregation_pb2.ListTasksRequest, asked)
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
    """Its open round is abandoned and its escrow released."""
    request = to_proto(aggregation_pb2.CancelTaskRequest, body, task_id=task_id)
    return message_response(await platform.tasks.CancelTask(request, timeout=START_SECONDS))


@router.get("/v1/tasks/{task_id}/plan", response_model=Plan, summary="A task's plan")
async def get_plan(
    task_id: TaskId,
    platform: Platform,
    version: Annotated[int, Query(ge=0, le=MOST_INT32, description="0 means the newest.")] = 0,
) -> JsonResponse:
    """Who exchanges updates with whom, and why each sits where it does."""
    await require_own_task(platform, task_id)
    request = topology_pb2.GetPlanRequest(task_id=task_id, version=version)
    return message_response(await platform.topology.GetPlan(request))


@router.post("/v1/tasks/{task_id}/links", status_code=204, response_class=Response, summary="Report measured links")
async def report_links(task_id: TaskId, body: Links, platform: Platform) -> Response:
    """Seconds that transfers between devices really took; the next plan heeds them."""
    await require_joined(platform, task_id)
    await platform.topology.ReportLinks(to_proto(topology_pb2.ReportLinksRequest, body, task_id=task_id))
    return Response(status_code=204)


@router.get("/v1/tasks/{task_id}/rounds", response_model=Page[Round], summary="List a task's rounds")
async def list_rounds(task_id: TaskId, platform: Platform, limit: Limit = 100, cursor: Cursor = "") -> JsonResponse:
    """In order."""
    request = aggregation_pb2.ListRoundsRequest(task_id=task_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ListRounds(request), "rounds"))


@router.get("/v1/tasks/{task_id}/rounds/{number}", response_model=RoundDetail, summary="One round")
async def get_round(task_id: TaskId, number: RoundNumber, platform: Platform) -> JsonResponse:
    """With every participant and what became of it."""
    request = aggregation_pb2.GetRoundRequest(task_id=task_id, number=number)
    return message_response(await platform.tasks.GetRound(request))


@router.get("/v1/tasks/{task_id}/rounds/{number}/prices", response_model=Quote, summary="Prices of a round")
async def get_prices(task_id: TaskId, number: RoundNumber, platform: Platform) -> JsonResponse:
    """One offer per participant. A device sees its own offer alone, without the solver's details."""
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
    """In order: the model it chose in each round (its identity), and what became of its updates."""
    request = aggregation_pb2.ListParticipationsRequest(
        task_id=task_id, device_id=device_id, limit=limit, cursor=cursor
    )
    return JsonResponse(page(await platform.tasks.ListParticipations(request), "participations"))


@router.get("/v1/tasks/{task_id}/events", response_model=Items[Event], summary="What happened to a task")
async def list_events(
    request: Request,
    task_id: TaskId,
    gateway: Gateway,
    after: Annotated[int, Query(ge=0, le=MOST_INT64, description="Only events after this number.")] = 0,
    limit: Limit = 100,
    wait: WaitSeconds = 0,
) -> JsonResponse:
    """In order; with `wait`, the answer comes when something happens or the time is over."""
    question = aggregation_pb2.ListEventsRequest(task_id=task_id, after=after, limit=limit, wait_seconds=wait)
    call = gateway.platform.tasks.ListEvents(question, timeout=wait + MARGIN_SECONDS)
    reply = await gateway.long_poller.wait(request, call)
    return JsonResponse({"items": [to_json(event) for event in reply.events]})


@router.get("/v1/tasks/{task_id}/replay", response_model=Page[ReplayedRound], summary="Make a task's models again")
async def replay_task(
    task_id: TaskId, platform: Platform, limit: ReplayLimit = 20, cursor: Cursor = ""
) -> JsonResponse:
    """From the updates that are stored, round by round: the same bits, or the round says why not. Rounds whose updates
    are stored no longer say so."""
    request = aggregation_pb2.ReplayTaskRequest(task_id=task_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ReplayTask(request, timeout=REPLAY_SECONDS), "rounds"))


@router.get("/v1/tasks/{task_id}/evaluation", response_model=Evaluation, summary="Models whose worth is asked for")
async def ask_evaluation(request: Request, task_id: TaskId, gateway: Gateway, wait: WaitSeconds = 0) -> JsonResponse:
    """One file of models, stacked along a new first dimension, made of some of a round's updates each; without a digest
    there is nothing to ask yet. Fetch it as any model, and answer."""
    question = aggregation_pb2.GetEvaluationRequest(task_id=task_id, wait_seconds=wait)
    call = gateway.platform.tasks.GetEvaluation(question, timeout=wait + REPLAY_SECONDS)
    return message_response(await gateway.long_poller.wait(request, call))


@router.post(
    "/v1/tasks/{task_id}/rounds/{number}/evaluation", response_model=EvaluationAnswer, summary="Tell models' worth"
)
async def answer_evaluation(task_id: TaskId, number: RoundNumber, body: Worths, platform: Platform) -> JsonResponse:
    """Whether the round's contributions are known by now. A second answer for the same models changes nothing."""
    request = to_proto(aggregation_pb2.AnswerEvaluationRequest, body, task_id=task_id, round=number)
    return message_response(await platform.tasks.AnswerEvaluation(request, timeout=START_SECONDS))


@router.get("/v1/tasks/{task_id}/contributions", response_model=Page[Contribution], summary="What devices contributed")
async def list_contributions(
    task_id: TaskId,
    platform: Platform,
    round: Annotated[int, Query(ge=0, le=MOST_INT32, description="Only of this round; 0 means all together.")] = 0,
    limit: Limit = 100,
    cursor: Cursor = "",
) -> JsonResponse:
    """Shapley values in units of the publisher's worth, by device; a device sees its own. In clusters a head's value is
    its whole cluster's: the server sees their sum alone."""
    request = aggregation_pb2.ListContributionsRequest(task_id=task_id, round=round, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ListContributions(request), "contributions"))


@router.get("/v1/tasks/{task_id}/models", response_model=Page[Model], summary="A task's model versions")
async def list_models(task_id: TaskId, platform: Platform, limit: Limit = 100, cursor: Cursor = "") -> JsonResponse:
    """By line and version; version 0 is the initial model, n the one made by round n."""
    request = aggregation_pb2.ListModelsRequest(task_id=task_id, limit=limit, cursor=cursor)
    return JsonResponse(page(await platform.tasks.ListModels(request), "models"))


@router.put(
    "/v1/tasks/{task_id}/models/{version}/measurement",
    status_code=204,
    response_class=Response,
    summary="Tell what a version measured",
)
async def report_measurement(task_id: TaskId, version: Version, body: Figures, platform: Platform) -> Response:
    """A device tells its own figures of the newest version, without an update; the first it tells stay. A publisher's
    evaluator tells its figures of any version; they are kept apart from the devices'."""
    request = to_proto(aggregation_pb2.ReportMeasurementRequest, body, task_id=task_id, version=version)
    await platform.tasks.ReportMeasurement(request)
    return Response(status_code=204)


@router.get(
    "/v1/tasks/{task_id}/models/{version}/measurements",
    response_model=Page[Measurement],
    summary="What devices measured of a version",
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
