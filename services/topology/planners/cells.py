"""Cells: each round base stations serve some devices, on which block and with how much noise. [DPVD]

[DPVD] "Optimizing Communication and Device Clustering for Clustered Federated Learning with Differential Privacy".
The noise problem has σ, the deviation of noise on a mean of X clipped gradients; an assignment's multiplier z is the
deviation of noise on their *sum* over the clip norm M, so z = σ X / M and ρ = 2 (M / (X σ))² = 2 / z². When a whole
device is to be hidden, its one clipped update is what is released: X = 1 in the noise problem.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.parameters import ParameterGroup
from coterie.parameters.privacy import OptimisedPrivacy, UniformPrivacy
from coterie.parameters.topology import CellsParameters
from coterie.records.enums import ScheduleStatus
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.trust.v1 import trust_pb2
from services.kit.rpc.enums import number
from services.kit.rpc.parameters import BadParameters, read, with_defaults
from services.topology.domain.cell_checkpoints import read_meta
from services.topology.domain.cell_noise import NoiseWeights
from services.topology.domain.radio import User, draw_delays, measured_delays
from services.topology.domain.records import MeasuredWay
from services.topology.domain.scheduling import NO_STATION, Cells, Floats, Picks
from services.topology.domain.scheduling_policies import Schedule, at_random, greedy, matching, schedule
from services.topology.errors import CannotPlan, NoCells
from services.topology.planners.base import Sources, parameters_of
from services.topology.planners.cell_network import layout_fingerprint, network
from services.topology.planners.cell_stations import Assembly, Noise, ask_all
from services.topology.planners.schedule_messages import ScheduledRound, unplaced
from services.topology.store import cells as stations
from services.topology.store import links, plans
from services.topology.usecases.policies import Policies, Tensors
from services.topology.usecases.stations import Stations

BY_HAND = ("matching", "greedy", "random")
QUICK, FEW = (*BY_HAND, "stations"), 100
"""Policies that schedule this many devices within milliseconds; a worker plans the rest."""
MOST_WAITED = 5
"""Rounds in a row a policy may leave out a device that some cell could serve; then the round goes by `matching`. So
does one in which it serves less than half as many as `matching`: a station that lies excludes no device."""
PRIVACIES = ("none", "uniform", "optimised")


@dataclass(frozen=True, slots=True, eq=False)
class CellInputs:
    """Everything a schedule depends on. policy: weights of a trained policy; None for one worked out by hand.

    measured: seconds of an upload by (cell, device).  serving: cells whose station is there.  lost: cells that are left
    out, with the reason.  decisions: of stations, by place among the cells; none where the planner decides.
    """

    cells: list[pb.Cell]
    devices: dict[str, trust_pb2.Device]
    models: int
    layout: str
    policy: Tensors | None
    measured: Mapping[tuple[str, str], float] = field(default_factory=dict)
    serving: frozenset[str] = frozenset()
    lost: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[int, pb.StationDecision] = field(default_factory=dict)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """(station,): whom devices may be served by: those that decided, else all that are not lost, else all."""
        if self.decisions:
            return np.array([b in self.decisions for b in range(len(self.cells))])
        there = np.array([cell.id not in self.lost for cell in self.cells])
        return there if there.any() else np.ones(len(self.cells), dtype=bool)


class CellsPlanner:
    """Schedules rounds over base stations."""

    def __init__(self, policies: Policies, stations: Stations) -> None:
        self._policies, self._stations = policies, stations

    def check(self, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Refuses what cells cannot protect; the policy itself is looked up when a round is planned."""
        if privacy not in PRIVACIES:
            raise BadParameters(f"the topology cells takes privacy {', '.join(PRIVACIES)}, not {privacy!r}")
        noise: list[type[ParameterGroup]] = [
            kind for kind in (OptimisedPrivacy, UniformPrivacy) if privacy in kind.choices
        ]
        return with_defaults(parameters, CellsParameters, *noise)

    def is_slow(self, devices: int, parameters: dict[str, Any]) -> bool:
        """A policy that was trained needs torch; the others are quick for the few devices of most tasks."""
        return devices > FEW or read(CellsParameters, parameters).policy not in QUICK

    async def gather(self, request: pb.MakePlanRequest, sources: Sources) -> CellInputs:
        """Cells from the store, positions from the registry, the policy, and what stations decide, where they do."""
        settings = read(CellsParameters, parameters_of(request))
        async with sources.database.reading() as tx:
            cells = await stations.every(tx)
            previous = await plans.find(tx, request.task_id)
            measured = await links.of_task(tx, request.task_id) if settings.times == "measured" else {}
        if not cells:
            raise NoCells("no cell is registered, so no device can be served; register one with PUT /v1/cells/{id}")
        ids = [participant.device_id for participant in request.participants]
        reply = await sources.registry.GetDevices(trust_pb2.GetDevicesRequest(device_ids=ids))
        models = max(request.models, 1)
        layout = layout_fingerprint(cells, models, settings)
        trained = settings.policy.startswith("pol_")
        policy = await self._policies.ready(settings.policy, layout) if trained else None
        heard = await self._stations.serving()
        serving = frozenset(cell_id for cell_id, is_heard in heard.items() if is_heard)
        given = CellInputs(
            cells,
            {device.id: device for device in reply.devices},
            models,
            layout,
            policy,
            measured=_taken(measured, rounds_waited(previous), 8.0 * request.model_bytes or settings.payload_bits),
            serving=serving,
            lost=dict.fromkeys(heard.keys() - serving, "its station is lost"),
        )
        if settings.policy in BY_HAND or not serving:
            return given
        return await self._decided(request, given, settings.policy, previous)

    async def _decided(
        self, request: pb.MakePlanRequest, given: CellInputs, policy: str, previous: pb.Plan | None
    ) -> CellInputs:
        """The same with what the stations that are there decide."""
        assembly = await asyncio.to_thread(assemble, request, given)
        if not assembly.cells.layout.users:
            return given
        observations = await asyncio.to_thread(assembly.observations, given.policy, previous)
        asked = {b: seen for b, seen in observations.items() if seen.users and given.cells[b].id in given.serving}
        decisions, faults = await ask_all(assembly, self._stations, asked)
        lost = {given.cells[b].id: why for b, why in faults.items()}
        return dataclasses.replace(given, decisions=decisions, lost={**given.lost, **lost})

    @staticmethod
    def plan(request: pb.MakePlanRequest, gathered: CellInputs, previous: pb.Plan | None) -> pb.Plan:
        """One round's schedule: an assignment "solo" for the served devices, "idle" with the reason for the others."""
        parameters = parameters_of(request)
        settings = read(CellsParameters, parameters)
        placed = _placed(request, gathered)
        assembly = assemble(request, gathered)
        cells, delay = assembly.cells, assembly.delay
        waited = rounds_waited(previous)
        chosen = _scheduled(assembly, gathered, settings, placed, waited)
        result = chosen.result
        noise = _noise(request, parameters, assembly, result)
        # What is not hidden by noise is for the platform's eyes alone.
        scheduled = ScheduledRound(gathered.cells, cells, delay, result, noise)
        if result.status is ScheduleStatus.EMPTY:
            raise CannotPlan(scheduled.explain_empty(len(request.participants)))
        assignments = {p.device_id: scheduled.assignment(i, p.device_id) for i, p in enumerate(placed)}
        waiting = {
            d: waited.get(d, 0) + 1 for d, assignment in assignments.items() if assignment.role == words.ROLE_IDLE
        }
        for device_id, rounds in waiting.items():
            assignments[device_id].because += f" ({rounds} in a row)" if rounds > 1 else ""
        return pb.Plan(
            assignments=[assignments.get(p.device_id) or unplaced(p.device_id) for p in request.participants],
            round_seconds=max(assignment.upload_seconds for assignment in assignments.values()),
            cell_details=_details(
                gathered,
                settings,
                scheduled=scheduled,
                request=request,
                waiting=waiting,
                chosen=chosen,
            ),
        )


def _taken(
    measured: Mapping[tuple[str, str], MeasuredWay], waited: Mapping[str, int], bits: float
) -> dict[tuple[str, str], float]:
    """Seconds of an upload by (cell, device), of what devices scheduled.

    Who waited for MOST_WAITED rounds measures again: a device that is not served cannot correct what one slow upload
    once scheduled.
    """
    return {
        (cell, device): way.upload_seconds(bits)
        for (device, cell), way in measured.items()
        if waited.get(device, 0) < MOST_WAITED
    }


def noise_weights(privacy: OptimisedPrivacy) -> NoiseWeights:
    """The constants of the noise problem."""
    return NoiseWeights(privacy.clip, privacy.dimension, privacy.smoothness, privacy.privacy_weight)


def assemble(request: pb.MakePlanRequest, given: CellInputs) -> Assembly:
    """The round's devices, cells and delays; the same for every policy."""
    parameters = parameters_of(request)
    settings = read(CellsParameters, parameters)
    placed = _placed(request, given)
    users = [_user(p, given) for p in placed]
    privacy = read(OptimisedPrivacy, parameters) if request.privacy == "optimised" else None
    fixed = given.policy is not None and read_meta(given.policy).get("penalty") == "fixed"
    weights = noise_weights(privacy) if privacy else None
    cells = network(given.cells, users, given.models, settings, weights=weights, fixed_penalty=fixed)
    cells = dataclasses.replace(cells, handled=cells.handled & given.usable[:, None])
    delay = draw_delays(cells.layout, np.random.default_rng([settings.seed, request.round]), 1)[0]
    measured = {
        (b, i): given.measured[cell.id, p.device_id]
        for b, cell in enumerate(given.cells)
        for i, p in enumerate(placed)
        if (cell.id, p.device_id) in given.measured
    }
    noise = None
    if privacy is not None:
        by_example = request.privacy_unit == words.PRIVACY_UNIT_EXAMPLE
        counted = cells.samples if by_example else np.ones_like(cells.samples)
        noise = Noise(noise_weights(privacy), counted, privacy.most_budget, privacy.least_budget)
    delay = measured_delays(cells.layout, delay, measured)
    return Assembly(
        task_id=request.task_id,
        round=request.round,
        policy=settings.policy,
        seed=settings.seed,
        stations=given.cells,
        cells=cells,
        delay=delay,
        noise=noise,
    )


def _placed(request: pb.MakePlanRequest, given: CellInputs) -> list[pb.Participant]:
    """Participants whose position is known."""
    return [p for p in request.participants if given.devices[p.device_id].HasField("location")]


def _noise(request: pb.MakePlanRequest, parameters: dict[str, Any], assembly: Assembly, plan: Schedule) -> Floats:
    """Noise multiplier of every device; 0 for those not served. Each cell solves its own problem."""
    if assembly.noise is None:
        uniform = read(UniformPrivacy, parameters) if request.privacy == "uniform" else None
        return np.where(plan.station != NO_STATION, uniform.multiplier() if uniform else 0.0, 0.0)
    answer = np.zeros(len(plan.station))
    for b in range(len(assembly.stations)):
        members = np.flatnonzero(plan.station == b)
        if members.size:
            answer[members] = assembly.noise.multipliers(members)
    return answer


def rounds_waited(previous: pb.Plan | None) -> dict[str, int]:
    """Rounds in a row each device was not served, by the plan before."""
    return {} if previous is None else dict(previous.cell_details.waited)


def _user(participant: pb.Participant, given: CellInputs) -> User:
    place = given.devices[participant.device_id].location
    known = 0 <= participant.model_index < given.models
    task = participant.model_index if known else given.models
    return User(place.x_metres, place.y_metres, task, max(participant.samples, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A round's schedule. decided_reward: of the policy's own decision.  instead: why that is not followed."""

    result: Schedule
    decided_reward: float
    instead: str = ""


def _scheduled(
    assembly: Assembly,
    given: CellInputs,
    settings: CellsParameters,
    placed: list[pb.Participant],
    waited: Mapping[str, int],
) -> Chosen:
    """The policy's schedule; `matching` where it leaves a device out for many rounds, or most of the devices."""
    cells, delay = assembly.cells, assembly.delay
    rounds = np.array([waited.get(p.device_id, 0) for p in placed])
    eager = dataclasses.replace(cells, shares=cells.shares * (1.0 + settings.fairness * rounds))
    learned = _learned_picks(assembly, given)
    if learned is None:
        result = schedule(cells, delay, _picks_by_hand(eager, assembly, settings))
        return Chosen(result, result.reward)
    result, best = schedule(cells, delay, learned), schedule(cells, delay, matching(eager, delay))
    reachable = (cells.handled & (delay.min(axis=2, initial=np.inf) <= cells.limits[:, None])).any(axis=0)
    if (reachable & (rounds >= MOST_WAITED)).any():
        return Chosen(best, result.reward, f"a device that a cell could serve waited for {MOST_WAITED} rounds")
    served, could = (int((item.station != NO_STATION).sum()) for item in (result, best))
    if 2 * served < could:
        return Chosen(best, result.reward, f"it serves {served} of {could} devices that blocks would carry")
    return Chosen(result, result.reward)


def _learned_picks(assembly: Assembly, given: CellInputs) -> Picks | None:
    """(station, device): whom stations or a trained policy serve; None without either."""
    if given.decisions:
        return assembly.picks(given.decisions)
    if given.policy is None:
        return None
    from services.topology.domain.cell_learning import policy_for  # brings torch, which others do without

    return policy_for(assembly.cells, given.policy).picks(assembly.cells, assembly.delay)


def _picks_by_hand(eager: Cells, assembly: Assembly, settings: CellsParameters) -> Picks:
    """(station, device): whom a policy serves that was not learned."""
    if settings.policy == "greedy":
        return greedy(eager, assembly.delay)
    if settings.policy == "random":
        return at_random(eager, assembly.delay, np.random.default_rng([settings.seed, assembly.round, 1]))
    return matching(eager, assembly.delay)


def _details(
    given: CellInputs,
    settings: CellsParameters,
    scheduled: ScheduledRound,
    request: pb.MakePlanRequest,
    waiting: dict[str, int],
    chosen: Chosen,
) -> pb.CellDetails:
    """What else people may ask: the policy, what its decision is worth beside `matching`, and each cell's load."""
    best = scheduled.schedule
    if settings.policy != "matching":
        best = schedule(scheduled.cells, scheduled.delay, matching(scheduled.cells, scheduled.delay))
    return pb.CellDetails(
        policy=settings.policy,
        layout=given.layout,
        status=number(scheduled.schedule.status),
        reward=scheduled.schedule.reward,
        matching_reward=best.reward,
        round=request.round,
        models={p.device_id: p.model_index for p in request.participants},
        cells=[
            pb.CellLoad(id=cell.id, blocks=cell.blocks, served=int((scheduled.schedule.station == b).sum()))
            for b, cell in enumerate(given.cells)
        ],
        waited=waiting,
        q_values={given.cells[b].id: decision.q_value for b, decision in given.decisions.items()},
        lost=given.lost,
        instead=chosen.instead,
        decided_reward=chosen.decided_reward if chosen.instead else 0.0,
    )
