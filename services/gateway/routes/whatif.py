"""What-if: run a solver on a JSON body, without a task."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.pricing.v1 import pricing_pb2
from coterie_api.topology.v1 import topology_pb2
from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.base import Gateway, router_for
from services.gateway.usecases.measured_runs import with_runs
from services.gateway.wire.bodies import read_within
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.whatif import NotJson, UnknownSolver

SERVICE_OF_SOLVER = {
    "scores": "trust",
    "clusters": "topology",
    "mesh": "topology",
    "noise": "topology",
    "blocks": "topology",
    "identity": "topology",
    "quality": "topology",
    "clerks": "topology",
    "market": "pricing",
    "survey": "pricing",
    "curvature": "pricing",
    "similarity": "pricing",
    "combine": "aggregation",
    "step": "aggregation",
    "sums": "aggregation",
    "grid": "aggregation",
    "rounding": "aggregation",
    "discrete-noise": "aggregation",
    "sum-privacy": "aggregation",
}
SOLVE_SECONDS = 120.0
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object"},
                "examples": {
                    "blocks": {"value": {"delay": [[0.2, 0.4], [0.3, 0.1]], "limit": 0.5}},
                    "scores": {"value": {"devices": 2, "direct": [[0, 0.5], [0.5, 0]]}},
                },
            }
        },
    }
}
router = router_for("what-if")


@router.post(
    "/v1/what-if/{solver}",
    response_class=Response,
    summary="What would you plan, what would you pay?",
    openapi_extra=_BODY,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def what_if(
    request: Request,
    solver: Annotated[
        str, Path(description="Solver.", examples=["blocks"], json_schema_extra={"enum": list(SERVICE_OF_SOLVER)})
    ],
    gateway: Gateway,
) -> Response:
    """Runs a solver of the trust, topology, pricing or aggregation service on the body and returns its answer
    unchanged. Infeasible is an answer, not an error; infinity is the string "inf". Disconnecting cancels the
    computation. For `quality` the body may name your `tasks` by id: the platform fills in their noise, γ, loss and
    accuracy."""
    if solver not in SERVICE_OF_SOLVER:
        raise UnknownSolver(f"no what-if solver {solver[:50]!r}; choose one of: {', '.join(SERVICE_OF_SOLVER)}")
    body = await read_within(request, gateway.settings.max_what_if_bytes)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"the input is not JSON: {error.reason} at byte {error.start}") from error
    answer = await gateway.long_poller.wait(request, _solve(gateway.platform, solver, text))
    return Response(answer, media_type="application/json")


async def _solve(platform: ServiceClients, solver: str, text: str) -> str:
    if SERVICE_OF_SOLVER[solver] == "trust":
        scores = trust_pb2.WhatIfRequest(solver=solver, input_json=text)
        return (await platform.trust.WhatIf(scores, timeout=SOLVE_SECONDS)).output_json
    if solver == "quality":
        text = await with_runs(platform, text)
    if SERVICE_OF_SOLVER[solver] == "topology":
        plan = topology_pb2.WhatIfRequest(solver=solver, input_json=text)
        return (await platform.topology.WhatIf(plan, timeout=SOLVE_SECONDS)).output_json
    if SERVICE_OF_SOLVER[solver] == "aggregation":
        updates = aggregation_pb2.WhatIfRequest(solver=solver, input_json=text)
        return (await platform.tasks.WhatIf(updates, timeout=SOLVE_SECONDS)).output_json
    price = pricing_pb2.WhatIfRequest(solver=solver, input_json=text)
    return (await platform.pricing.WhatIf(price, timeout=SOLVE_SECONDS)).output_json
