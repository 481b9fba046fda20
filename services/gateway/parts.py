"""What routes are given: the services, the blob store, the door; and how a family of routes begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.requests import Request

from services.gateway.door import Door
from services.gateway.guard import GuardedRoute
from services.gateway.patience import Patience
from services.gateway.pulse import Pulse
from services.gateway.settings import GatewaySettings
from services.gateway.upstreams import Upstreams
from services.kit.blobs import BlobStore


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the gateway is made of, built once at start."""

    settings: GatewaySettings
    platform: Upstreams
    blobs: BlobStore
    door: Door
    pulse: Pulse
    patience: Patience

    @classmethod
    def open(cls, settings: GatewaySettings) -> Parts:
        """Built from settings; call from within the event loop."""
        platform = Upstreams.open(settings)
        return cls(
            settings,
            platform,
            BlobStore.from_settings(settings),
            Door(platform.registry, seconds=settings.key_cache_seconds, size=settings.key_cache_size),
            Pulse(platform.registry),
            Patience(),
        )


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
