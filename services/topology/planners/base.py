"""The interface of planners, and the sources they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.trust.v1 import trust_pb2_grpc
from services.kit.database.engine import Database
from services.kit.rpc.parameters import from_struct
from services.kit.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of a planner's inputs."""

    registry: trust_pb2_grpc.RegistryAsyncStub
    trust: trust_pb2_grpc.TrustAsyncStub
    database: Database
    clock: Clock


class Planner(Protocol):
    """Plans one topology."""

    def check(self, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters with all defaults filled in; raise BadParameters."""
        ...

    def is_slow(self, devices: int, parameters: dict[str, Any]) -> bool:
        """Whether planning for this many devices may take seconds; `plan` then runs in a process that can be killed."""
        ...

    async def gather(self, request: pb.MakePlanRequest, sources: Sources) -> Any:
        """Fetch the inputs of the plan from the registry and the measured links."""
        ...

    @staticmethod
    def plan(request: pb.MakePlanRequest, gathered: Any, previous: pb.Plan | None) -> pb.Plan:
        """Return the plan; the caller fills in task, version and time.

        A plan with the same assignments as the previous one means that too little has changed for a new plan.
        """
        ...


MakePlanner: TypeAlias = Callable[..., Planner]
"""A planner's class; it is called without arguments, except for built-in planners that need other use cases."""


def strangers_of(participants: Sequence[pb.Participant]) -> list[tuple[int, int]]:
    """Pairs of places of participants whose owners do not know each other: trust between them counts as 0."""
    places = {participant.device_id: place for place, participant in enumerate(participants)}
    return [
        (place, places[stranger])
        for place, participant in enumerate(participants)
        for stranger in participant.strangers
        if stranger in places
    ]


def alone_of(participants: Sequence[pb.Participant]) -> list[int]:
    """Places of the participants that join no cluster."""
    return [place for place, participant in enumerate(participants) if participant.unclustered]


def parameters_of(request: pb.MakePlanRequest) -> dict[str, Any]:
    """The task's parameters, as the task was created with."""
    return from_struct(request.parameters)
