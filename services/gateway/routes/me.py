"""The principal behind the API key."""

from __future__ import annotations

from starlette.requests import Request

from coterie.records import Me
from services.gateway.access.guard import PRINCIPAL
from services.gateway.routes.base import router_for
from services.gateway.wire.responses import JsonResponse, message_response

router = router_for("me")


@router.get("/v1/me", response_model=Me, summary="The caller's principal")
async def get_me(request: Request) -> JsonResponse:
    """Role, subject and name behind the API key; from the gateway's cache if possible."""
    return message_response(request.scope[PRINCIPAL])
