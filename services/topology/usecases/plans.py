"""Plans: made, kept and looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.database.rows import advisory_lock
from services.kit.rpc.parameters import BadParameters
from services.kit.rpc.principal import require_role
from services.kit.runtime.workers import Workers
from services.topology.errors import CannotPlan, UnknownPlan
from services.topology.planners import REGISTRY
from services.topology.planners.base import Planner, Sources, parameters_of
from services.topology.store import plans


class Plans:
    """The plans of all tasks."""

    def __init__(self, sources: Sources, workers: Workers, arguments: Mapping[str, tuple[Any, ...]]) -> None:
        """arguments: constructor arguments of built-in planners that have any, by topology."""
        self._sources, self._workers = sources, workers
        self._arguments, self._planners = arguments, dict[str, Planner]()
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
        planner = await self._planner(request.topology)
        gathered = await planner.gather(request, self._sources)
        if planner.is_slow(len(request.participants), parameters_of(request)):
            fresh = await self._workers.run(planner.plan, request, gathered, previous)
        else:
            fresh = await asyncio.to_thread(planner.plan, request, gathered, previous)
        async with self._database.writing() as tx:
            # Another replica may have answered the same request meanwhile: its answer stands.
            await advisory_lock(tx, f"plans of {request.task_id}")
            known = await plans.find_for(tx, request.task_id, request.key)
            if known is not None:
                return known
            newest = await plans.find(tx, request.task_id)
            if newest is not None and list(newest.assignments) == list(fresh.assignments):
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

    async def check_parameters(self, topology: str, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with the defaults of this topology filled in."""
        planner = await self._planner(topology)
        checked = planner.check(privacy, parameters)
        if planner.is_slow(1, checked):
            self._workers.warm()  # the task's first plan will be asked for soon
        return checked

    async def _planner(self, topology: str) -> Planner:
        if topology not in self._planners:
            make = await asyncio.to_thread(REGISTRY.get, topology)
            if make is None:
                names = ", ".join(sorted(REGISTRY.names))
                raise BadParameters(f"no topology {topology!r}; choose one of: {names}{REGISTRY.advice}")
            self._planners[topology] = make(*self._arguments.get(topology, ()))
        return self._planners[topology]
