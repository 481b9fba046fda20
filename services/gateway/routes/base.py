"""Dependencies of routes, and the router that all modules of routes use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.requests import Request

from services.gateway.access.authenticator import Authenticator
from services.gateway.access.guard import GuardedRoute
from services.gateway.settings import GatewaySettings
from services.gateway.usecases.heartbeats import HeartbeatBatcher
from services.gateway.usecases.long_polls import LongPoller
from services.kit.database.blobs import BlobStore
from services.kit.rpc.service_clients import ServiceClients


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The parts of the gateway, built once at start."""

    settings: GatewaySettings
    platform: ServiceClients
    blobs: BlobStore
    authenticator: Authenticator
    heartbeats: HeartbeatBatcher
    long_poller: LongPoller


async def get_dependencies(request: Request) -> Dependencies:
    """Return the parts of the gateway that serves a request."""
    dependencies: Dependencies = request.app.state.dependencies
    return dependencies


async def get_services(request: Request) -> ServiceClients:
    """Return the clients of the services."""
    dependencies: Dependencies = request.app.state.dependencies
    return dependencies.platform


Gateway = Annotated[Dependencies, Depends(get_dependencies)]
Platform = Annotated[ServiceClients, Depends(get_services)]


def router_for(noun: str) -> APIRouter:
    """Make a router of guarded routes."""
    return APIRouter(route_class=GuardedRoute, tags=[noun], generate_unique_id_function=_name)


def _name(route: APIRoute) -> str:
    return route.name
