"""The star: every device uploads its own update to the platform."""

from __future__ import annotations

from typing import Any

from coterie.parameters.privacy import UniformPrivacy
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.rpc.parameters import read, with_defaults
from services.topology.planners.base import Sources, parameters_of


class StarPlanner:
    """Plans stars."""

    def check(self, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if privacy != "uniform":
            return parameters
        return with_defaults(parameters, UniformPrivacy)

    def is_slow(self, devices: int, parameters: dict[str, Any]) -> bool:
        """Never: all devices have the same assignment."""
        return False

    async def gather(self, request: pb.MakePlanRequest, sources: Sources) -> None:
        """Return nothing: a star depends only on its participants."""

    @staticmethod
    def plan(request: pb.MakePlanRequest, gathered: None, previous: pb.Plan | None) -> pb.Plan:
        noise, because = 0.0, "every device uploads to the platform"
        if request.privacy == "uniform":
            uniform = read(UniformPrivacy, parameters_of(request))
            noise = uniform.multiplier()
            if uniform.target_epsilon is not None:
                because += f"; noise for ε = {uniform.target_epsilon:g} in all rounds, δ = {uniform.delta:g}"
        return pb.Plan(
            assignments=[
                pb.Assignment(
                    device_id=participant.device_id,
                    role=words.ROLE_SOLO,
                    group=-1,
                    block=-1,
                    noise_multiplier=noise,
                    because=because,
                )
                for participant in request.participants
            ]
        )
