"""Who am I?"""

from __future__ import annotations

from starlette.requests import Request

from services.gateway.answers import Json, answer
from services.gateway.guard import PRINCIPAL
from services.gateway.parts import routes_for
from services.gateway.schemas.identity import Me

routes = routes_for("me")


@routes.get("/v1/me", response_model=Me, summary="Whom the key used speaks for")
async def get_me(request: Request) -> Json:
    """Role, subject and name behind the API key; answered from the gateway's memory when it can be."""
    return answer(request.scope[PRINCIPAL])
