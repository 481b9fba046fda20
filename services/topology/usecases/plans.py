"""Plans: made, kept and looked up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit import whatif
from services.kit.caller import require_role
from services.topology.errors import BadParameters, CannotPlan, UnknownPlan
from services.topology.planners.base import Planner, Sources
from services.topology.store import plans


class Plans:
    """Who exchanges updates with whom, task by task."""

    def __init__(self, sources: Sources, planners: Mapping[str, Planner], solvers: Mapping[str, str]) -> None:
        self._sources, self._planners, self._solvers = sources, planners, solvers
        self._database, self._clock = sources.database, sources.clock

    async def make(self, request: pb.MakePlanRequest) -> pb.Plan:
        """Plans, or repeats the plan that a request with this key got; the newest plan is kept if nothing changed."""
        require_role()
        async with self._database.reading() as tx:
            known = await plans.find_for(tx, request.task_id, request.key)
            previous = await plans.find(tx, request.task_id)
        if known is not None:
            return known
        if not request.participants:
            raise CannotPlan("a plan needs at least one participant")
        planner = self._planner(request.topology)
        gathered = await planner.gather(request, self._sources)
        fresh = await asyncio.to_thread(planner.plan, request, gathered, previous)
        async with self._database.writing() as tx:
            # Another replica may have answered the same request meanwhile: its answer stands.
            known = await plans.find_for(tx, request.task_id, request.key)
            if known is not None:
                return known
            newest = await plans.find(tx, request.task_id)
            if newest is not None and list(newest.seats) == list(fresh.seats):
                fresh = newest
            else:
                fresh.task_id, fresh.topology = request.task_id, request.topology
                fresh.version = 1 if newest is None else newest.version + 1
                fresh.created_at = self._clock.now()
                await plans.add(tx, fresh)
            await plans.answer_with(tx, request.task_id, request.key, fresh.version)
        return fresh

    async def get(self, task_id: str, version: int) -> pb.Plan:
        """A version of a task's plan; 0 means the newest."""
        async with self._database.reading() as tx:
            plan = await plans.find(tx, task_id, version)
        if plan is None:
            raise UnknownPlan(f"task {task_id} has no plan yet; it gets one when its first round opens")
        return plan

    async def check_parameters(self, topology: str, privacy: str, parameters_json: str) -> str:
        """The parameters with the defaults of this topology filled in."""
        try:
            parameters = json.loads(parameters_json or "{}")
        except ValueError as error:
            raise BadParameters(f"parameters are not JSON: {error}") from error
        if not isinstance(parameters, dict):
            raise BadParameters("parameters must be a JSON object")
        return json.dumps(self._planner(topology).check(privacy, parameters), sort_keys=True)

    def _planner(self, topology: str) -> Planner:
        if topology not in self._planners:
            raise BadParameters(f"no topology {topology!r}; choose one of: {', '.join(sorted(self._planners))}")
        return self._planners[topology]

    async def what_if(self, solver: str, input_json: str) -> str:
        """A solver's answer to a JSON question."""
        require_role("admin", "publisher")
        return await asyncio.to_thread(whatif.answer, self._solvers, solver, input_json)
