"""What may be asked of the topology planner: one method per intention, one transaction each."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit import whatif
from services.kit.caller import require_role
from services.topology import store
from services.topology.errors import BadCell, BadParameters, CannotPlan, UnknownCell, UnknownPlan
from services.topology.planners.base import Planner, Sources

MAX_LINKS = 10_000


class TopologyUseCases:
    """Plans, links and cells."""

    def __init__(self, sources: Sources, planners: Mapping[str, Planner], solvers: Mapping[str, str]) -> None:
        self._sources, self._planners, self._solvers = sources, planners, solvers
        self._database, self._clock = sources.database, sources.clock

    async def make_plan(self, request: pb.MakePlanRequest) -> pb.Plan:
        """Plans, or repeats the plan that a request with this key got; the newest plan is kept if nothing changed."""
        require_role()
        async with self._database.reading() as tx:
            known = await store.find_plan_for(tx, request.task_id, request.key)
            previous = await store.find_plan(tx, request.task_id)
        if known is not None:
            return known
        if not request.participants:
            raise CannotPlan("a plan needs at least one participant")
        planner = self._planner(request.topology)
        gathered = await planner.gather(request, self._sources)
        fresh = await asyncio.to_thread(planner.plan, request, gathered, previous)
        async with self._database.writing() as tx:
            # Another replica may have answered the same request meanwhile: its answer stands.
            known = await store.find_plan_for(tx, request.task_id, request.key)
            if known is not None:
                return known
            newest = await store.find_plan(tx, request.task_id)
            if newest is not None and list(newest.seats) == list(fresh.seats):
                fresh = newest
            else:
                fresh.task_id, fresh.topology = request.task_id, request.topology
                fresh.version = 1 if newest is None else newest.version + 1
                fresh.created_at = self._clock.now()
                await store.add_plan(tx, fresh)
            await store.answer_with(tx, request.task_id, request.key, fresh.version)
        return fresh

    async def get_plan(self, task_id: str, version: int) -> pb.Plan:
        """A version of a task's plan; 0 means the newest."""
        async with self._database.reading() as tx:
            plan = await store.find_plan(tx, task_id, version)
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

    async def report_links(self, task_id: str, links: list[tuple[str, str, float]]) -> None:
        """Stores link times a device measured; they are used from the next plan on."""
        caller = require_role("device", "admin")
        if len(links) > MAX_LINKS:
            raise BadParameters(f"at most {MAX_LINKS} links are taken at once, {len(links)} came")
        for index, (a, b, seconds) in enumerate(links):
            if a == b or not (math.isfinite(seconds) and seconds > 0):
                raise BadParameters(f"link {index} ({a}, {b}): two devices and a time above 0, not {seconds}")
            if caller.role == "device" and caller.subject not in (a, b):
                raise BadParameters(f"link {index} ({a}, {b}): a device reports its own links only")
        async with self._database.writing() as tx:
            await store.put_links(tx, task_id, links, self._clock.now())

    async def put_cell(self, cell: pb.Cell) -> pb.Cell:
        """Registers or changes a base station."""
        require_role("admin")
        if not 1 <= len(cell.id) <= 64:
            raise BadCell(f"id must have 1 to 64 characters, not {len(cell.id)}")
        if not 1 <= cell.blocks <= 1000:
            raise BadCell(f"blocks must be from 1 to 1000, not {cell.blocks}")
        positive = ("power_watts", "bandwidth_hertz", "delay_limit_seconds", "radius_metres")
        for name in (*positive, "x_metres", "y_metres"):
            value = getattr(cell, name)
            if not math.isfinite(value) or (name in positive and value <= 0):
                raise BadCell(f"{name} must be a finite number{' above 0' if name in positive else ''}, not {value}")
        async with self._database.writing() as tx:
            await store.put_cell(tx, cell)
        return cell

    async def list_cells(self) -> list[pb.Cell]:
        """All base stations."""
        async with self._database.reading() as tx:
            return await store.list_cells(tx)

    async def remove_cell(self, cell_id: str) -> None:
        """Forgets a base station."""
        require_role("admin")
        async with self._database.writing() as tx:
            if not await store.remove_cell(tx, cell_id):
                raise UnknownCell(f"no cell {cell_id!r}; list them with GET /v1/cells")

    async def what_if(self, solver: str, input_json: str) -> str:
        """A solver's answer to a JSON question."""
        require_role("admin", "publisher")
        return await asyncio.to_thread(whatif.answer, self._solvers, solver, input_json)
