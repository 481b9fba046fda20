"""Guard every route: authenticate, check the role, limit the body, and only then parse."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from coterie.records.enums import PrincipalRole
from services.gateway.access.authenticator import Authenticator, address_of
from services.gateway.access.table import ACCESS, BROWSER_ROUTES, NO_ROLES, PUBLIC, Roles
from services.gateway.errors import BadText, RoleNotAllowed
from services.gateway.wire.bodies import read_within
from services.kit.rpc.enums import word
from services.kit.rpc.principal import ANONYMOUS, Principal, set_principal

PRINCIPAL = "coterie.principal"


class StrictRequest(Request):
    """A request whose JSON must be strict (no NaN, no lone surrogates) and free of NUL, which databases refuse."""

    content: bytes | None = None
    """The body, once the guard has read it."""

    async def body(self) -> bytes:
        return await super().body() if self.content is None else self.content

    async def json(self) -> Any:
        body = await self.body()
        if rb"\u0000" in body:
            raise orjson.JSONDecodeError("the character U+0000 cannot be stored", "", 0)
        return orjson.loads(body)


class GuardedRoute(APIRoute):
    """A route that is open only to the roles that `ACCESS` lists for it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_json = self.body_field is not None

        async def guarded(request: Request) -> Response:
            await guard(request, self.name)
            strict = StrictRequest(request.scope, request.receive)
            if takes_json:
                strict.content = await read_within(request, request.app.state.dependencies.settings.max_json_bytes)
            return await handle(strict)

        return guarded


async def guard(request: Request, route: str) -> None:
    """Admit the caller to a route, or raise."""
    await admit(request, ACCESS.get(route, NO_ROLES), route)
    if b"%00" in request.scope["query_string"] or "\0" in request.scope["path"]:
        raise BadText("the character U+0000 cannot be stored; remove it from the path and the query")


async def admit(request: Request, roles: Roles, route: str) -> None:
    """Authenticate the caller and check its role; calls to services then act for it."""
    if roles is PUBLIC:
        set_principal(ANONYMOUS)
        return
    authenticator: Authenticator = request.app.state.dependencies.authenticator
    principal = await authenticator.identify(request.headers.get("authorization", ""), address_of(request))
    role = word(PrincipalRole, principal.role)
    if role not in roles:
        open_to = " or ".join(sorted(roles)) or "no role"
        raise RoleNotAllowed(f"this needs the role {open_to}; the key used is a {role}'s")
    if principal.link_id and route not in BROWSER_ROUTES:
        raise RoleNotAllowed(
            "the key used is a linked browser's, which may only sign decisions; use the device's own key"
        )
    request.scope[PRINCIPAL] = principal
    set_principal(Principal(role, principal.subject, principal.owner_id))
