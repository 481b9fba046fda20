"""Finds a request's route by the shape of its path, instead of trying a hundred in turn."""

from __future__ import annotations

from fastapi.routing import APIRouter
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

Shape = tuple[str, int, str]
"""Method, number of parts, and the part that names the family: `tasks` of `/v1/tasks/{task_id}`."""


class Finder:
    """ASGI before a router. What is not found (another method, another path) is the router's to answer."""

    def __init__(self, router: APIRouter) -> None:
        self._router = router
        self._routes: dict[Shape, list[Route]] = {}
        for route in router.routes:
            if isinstance(route, Route) and ":path}" not in route.path:  # such a parameter has any number of parts
                for method in route.methods or ():
                    self._routes.setdefault(_shape(method, route.path), []).append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for route in self._routes.get(_shape(scope["method"], scope["path"]), ()):
                match, found = route.matches(scope)
                if match is Match.FULL:
                    scope["router"] = self._router
                    scope.update(found)
                    await route.handle(scope, receive, send)
                    return
        await self._router.app(scope, receive, send)


def _shape(method: str, path: str) -> Shape:
    parts = path.split("/", 3)
    return method, path.count("/"), parts[2] if len(parts) > 2 else ""
