"""Who am I?"""

from __future__ import annotations

from starlette.requests import Request

from coterie.records import Me
from services.gateway.access.guard import PRINCIPAL
from services.gateway.routes.base import router_for
from services.gateway.wire.responses import JsonResponse, message_response

router = router_for("me")


@router.get("/v1/me", response_model=Me, summary="Whom the key used speaks for")
async def get_me(request: Request) -> JsonResponse:
    """Role, subject and name behind the API key; answered from the gateway's memory when it can be."""
    return message_response(request.scope[PRINCIPAL])
