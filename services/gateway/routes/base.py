"""What routes are given: the services, the blob store, the door; and how a family of routes begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.requests import Request

from services.gateway.access.door import Door
from services.gateway.access.guard import GuardedRoute
from services.gateway.settings import GatewaySettings
from services.gateway.usecases.heartbeats import Pulse
from services.gateway.usecases.polls import Patience
from services.kit.blobs import BlobStore
from services.kit.stubs import Upstreams


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the gateway is made of, built once at start."""

    settings: GatewaySettings
    platform: Upstreams
    blobs: BlobStore
    door: Door
    pulse: Pulse
    patience: Patience


async def parts_of(request: Request) -> Parts:
    """The parts of the gateway that serves a request."""
    parts: Parts = request.app.state.parts
    return parts


async def platform_of(request: Request) -> Upstreams:
    """The services behind the gateway that serves a request."""
    parts: Parts = request.app.state.parts
    return parts.platform


Gateway = Annotated[Parts, Depends(parts_of)]
Platform = Annotated[Upstreams, Depends(platform_of)]


def routes_for(noun: str) -> APIRouter:
    """An empty family of guarded routes."""
    return APIRouter(route_class=GuardedRoute, tags=[noun], generate_unique_id_function=_name)


def _name(route: APIRoute) -> str:
    return route.name
