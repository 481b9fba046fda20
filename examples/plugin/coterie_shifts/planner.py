"""Planner of shifts: one part of the devices works in a round, and the next part in the next round."""

from __future__ import annotations

from typing import Any

from coterie_api.enums.v1 import enums_pb2 as enums
from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_shifts.parameters import ShiftsParameters
from services.topology.planners.base import Sources, parameters_of


class ShiftsPlanner:
    """Shifts by the order of device ids."""

    def check(self, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        return parameters

    def is_slow(self, devices: int, parameters: dict[str, Any]) -> bool:
        return False

    async def gather(self, request: pb.MakePlanRequest, sources: Sources) -> None:
        return None

    @staticmethod
    def plan(request: pb.MakePlanRequest, gathered: None, previous: pb.Plan | None) -> pb.Plan:
        assignments, shifts = [], ShiftsParameters.validate(parameters_of(request)).shifts
        for place, device in enumerate(sorted(participant.device_id for participant in request.participants)):
            works = place % shifts == request.round % shifts
            role, because = (enums.ROLE_SOLO, "its shift") if works else (enums.ROLE_IDLE, "another shift")
            assignments.append(pb.Assignment(device_id=device, role=role, group=-1, block=-1, because=because))
        return pb.Plan(assignments=assignments)
