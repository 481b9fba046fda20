"""Plain Starlette routes for the requests that every device makes in every round.

FastAPI's layers cost 45 to 75 µs of CPU a request, as much as everything else the gateway does for these. Their
endpoints are declared like all others, which makes their OpenAPI entries; a pydantic model of the same annotations
reads the parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, get_args, get_origin

from fastapi import params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from services.gateway.access.guard import guard

PLAIN = frozenset({"get_work", "put_update", "heartbeat"})


class PlainRoute(Route):
    """Serves the endpoint of a declared route without FastAPI's layers.

    Endpoints take path, query and header parameters, the request, and dependencies of the request alone.
    """

    def __init__(self, declared: APIRoute) -> None:
        super().__init__(declared.path, self._serve, methods=declared.methods, name=declared.name)
        if self.methods and declared.methods:
            self.methods &= declared.methods  # Starlette adds HEAD to GET
        self.declared = declared
        self._call: Any = declared.endpoint
        self._dependencies: dict[str, Any] = {}
        self._request_names: list[str] = []
        self._locations: dict[str, tuple[str, str]] = {}
        self._lists: set[str] = set()
        self._model = self._read_signature()
        self._names_by_place: dict[str, list[tuple[str, str]]] = {}
        for name, (place, key) in self._locations.items():
            self._names_by_place.setdefault(place, []).append((name, key))

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
        return create_model(self.name, **fields)

    def _location(self, name: str, metadata: Sequence[Any]) -> tuple[str, str]:
        if name in self.param_convertors:
            return "path", name
        if any(isinstance(item, params.Header) for item in metadata):
            return "header", name.replace("_", "-")
        return "query", name

    async def _serve(self, request: Request) -> Response:
        request.scope["route"] = self
        await guard(request, self.name)
        arguments = self._read(request)
        for name in self._request_names:
            arguments[name] = request
        for name, dependency in self._dependencies.items():
            arguments[name] = await dependency(request)
        response: Response = await self._call(**arguments)
        return response

    def _read(self, request: Request) -> dict[str, Any]:
        """The validated parameters of a request."""
        values: dict[str, Any] = {}
        for place, names in self._names_by_place.items():
            source = _source(request, place)
            for name, key in names:
                if key in source:
                    values[name] = source.getlist(key) if name in self._lists else source[key]
        try:
            return {**vars(self._model.model_validate(values))}
        except ValidationError as error:
            faults = [
                {**fault, "loc": (*self._locations[str(fault["loc"][0])], *fault["loc"][1:])}
                for fault in error.errors()
            ]
            raise RequestValidationError(faults) from error


def _source(request: Request, place: str) -> Any:
    if place == "path":
        return request.path_params
    return request.headers if place == "header" else request.query_params


def served(declared: Iterable[BaseRoute], plain: frozenset[str] = PLAIN) -> list[BaseRoute]:
    """Routes as the application serves them, in the order they are matched: the plain ones first."""
    routes = [PlainRoute(item) if isinstance(item, APIRoute) and item.name in plain else item for item in declared]
    return sorted(routes, key=lambda item: not isinstance(item, PlainRoute))


def declared(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """Routes as they were declared, for the OpenAPI document."""
    return [item.declared if isinstance(item, PlainRoute) else item for item in routes]
