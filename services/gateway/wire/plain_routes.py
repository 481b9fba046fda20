"""Plain Starlette routes for the busiest requests.

For these requests FastAPI's layers would cost as much CPU as the rest of the gateway. Their endpoints are declared like
all others, which makes their OpenAPI entries; a pydantic model of the same annotations reads the parameters.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import parse_qs

from fastapi import params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from services.gateway.access.guard import guard

PLAIN = frozenset({"get_work", "put_update", "heartbeat", "get_me"})


class PlainEndpoint:
    """Serves the endpoint of a declared route as ASGI, without FastAPI's layers.

    Endpoints take path, query and header parameters, the request, and dependencies that need only the request.
    """

    def __init__(self, declared: APIRoute) -> None:
        self.declared = declared
        self._call: Any = declared.endpoint
        self._dependencies: dict[str, Any] = {}
        self._request_names: list[str] = []
        self._locations: dict[str, tuple[str, str]] = {}
        self._lists: set[str] = set()
        self._model = self._read_signature()
        self._names_by_source: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for name, (source, key) in self._locations.items():
            self._names_by_source[source].append((name, key))

    def _read_signature(self) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(self._call, eval_str=True).parameters.items():
            annotation, metadata = parameter.annotation, get_args(parameter.annotation)[1:]
            depends = next((item for item in metadata if isinstance(item, params.Depends)), None)
            if annotation is Request:
                self._request_names.append(name)
            elif depends is not None:
                self._dependencies[name] = depends.dependency
            else:
                default = ... if parameter.default is parameter.empty else parameter.default
                fields[name] = (annotation, default)
                self._locations[name] = self._location(name, metadata)
                kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
                if get_origin(kind) is list:
                    self._lists.add(name)
        return create_model(self.declared.name, **fields)

    def _location(self, name: str, metadata: Sequence[Any]) -> tuple[str, str]:
        if name in self.declared.param_convertors:
            return "path", name
        if any(isinstance(item, params.Header) for item in metadata):
            return "header", name.replace("_", "-")
        return "query", name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self.declared
        request = Request(scope, receive, send)
        await guard(request, self.declared.name)
        arguments = self._read(request)
        for name in self._request_names:
            arguments[name] = request
        for name, dependency in self._dependencies.items():
            arguments[name] = await dependency(request)
        response: Response = await self._call(**arguments)
        await response(scope, receive, send)

    def _read(self, request: Request) -> dict[str, Any]:
        """Read and validate the parameters of a request."""
        values: dict[str, Any] = {}
        for source, names in self._names_by_source.items():
            given = _values_of(request, source)
            for name, key in names:
                if key in given:
                    value = given[key]
                    values[name] = value[-1] if source == "query" and name not in self._lists else value
        try:
            return {**vars(self._model.model_validate(values))}
        except ValidationError as error:
            faults = [
                {**fault, "loc": (*self._locations[str(fault["loc"][0])], *fault["loc"][1:])}
                for fault in error.errors()
            ]
            raise RequestValidationError(faults) from error


def _values_of(request: Request, source: str) -> Mapping[str, Any]:
    if source == "path":
        return request.path_params
    if source == "header":
        return request.headers
    return _parsed_query(request.scope["query_string"])


@lru_cache(maxsize=256)  # all devices of a task send the same query
def _parsed_query(query: bytes) -> Mapping[str, list[str]]:
    return parse_qs(query.decode("latin-1"), keep_blank_values=True)


def served(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """Convert declared routes to served ones, the plain ones first because they are matched in order."""
    plain: list[BaseRoute] = []
    others: list[BaseRoute] = []
    for route in routes:
        if isinstance(route, APIRoute) and route.name in PLAIN:
            plain.append(_plain_route(route))
        else:
            others.append(route)
    return plain + others


def _plain_route(declared: APIRoute) -> Route:
    route = Route(declared.path, PlainEndpoint(declared), methods=declared.methods, name=declared.name)
    if route.methods and declared.methods:
        route.methods &= declared.methods  # Starlette adds HEAD to GET
    return route


def declared(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """Return routes as they were declared, for the OpenAPI document."""
    return [_declared(route) for route in routes]


def _declared(route: BaseRoute) -> BaseRoute:
    endpoint = route.endpoint if isinstance(route, Route) else None
    return endpoint.declared if isinstance(endpoint, PlainEndpoint) else route
