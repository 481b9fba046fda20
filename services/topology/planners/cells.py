"""Cells: each round base stations serve some devices, on which block and with how much noise. [DPVD]

[DPVD] "Optimizing Communication and Device Clustering for Clustered Federated Learning with Differential Privacy".
The noise problem speaks of σ, the deviation of noise on a mean of X clipped gradients; a seat's multiplier z is the
deviation of noise on their *sum* over the clip norm M, so z = σ X / M and ρ = 2 (M / (X σ))² = 2 / z². When a whole
device is to be hidden, its one clipped update is what is released: X = 1 in the noise problem.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from coterie.records.words import ScheduleStatus
from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.trust.v1 import trust_pb2
from coterie_api.words.v1 import words_pb2 as words
from services.kit.words import number
from services.topology.domain.cell_noise import NoiseWeights, bounded_noise, noise_for_budget
from services.topology.domain.radio import User, draw_delays
from services.topology.domain.scheduling import NOBODY, Cells, Floats, Picks
from services.topology.domain.scheduling_policies import Schedule, at_random, greedy, matching, schedule
from services.topology.errors import BadParameters, CannotPlan, NoCells
from services.topology.planners.base import Parameters, Sources, parameters_of, read_section
from services.topology.planners.cell_network import Radio, layout_fingerprint, network
from services.topology.planners.schedule_told import ScheduledRound, unplaced
from services.topology.planners.star import UniformPrivacy
from services.topology.store import cells as stations
from services.topology.usecases.policies import Policies, Tensors

BY_HAND = ("matching", "greedy", "random")
PRIVACIES = ("none", "uniform", "optimised")


class CellsParameters(Radio):
    """How rounds are scheduled, and how devices find their model.

    policy: "matching", "greedy", "random", or the id of a trained one.  seed: of fading and of the random policy.
    identity_weight: λ.  relative_loss: losses over their mean, so that λ means the same whatever the loss's unit.
    settle_after: equal choices after which a device downloads its likely models only.  fairness: what each round of
    waiting adds to a device's share when devices are picked. Unlike [DPVD], which serves the same largest shares round
    after round, so that whoever is crowded out never corrects a first wrong choice of model; 0 is as there.
    """

    policy: str = Field(default="matching", pattern=r"^(matching|greedy|random|pol_[0-9a-z]{1,40})$")
    seed: int = Field(default=0, ge=0, lt=2**63)
    identity_weight: float = Field(default=0.5, ge=0, le=1)
    relative_loss: bool = True
    settle_after: int = Field(default=3, ge=1, le=1000)
    fairness: float = Field(default=0.5, ge=0, le=100)


class OptimisedPrivacy(Parameters):
    """The noise problem (d²/2L) max σ² + γ Σρ. clip: M.  dimension: d.  smoothness: L.  privacy_weight: γ.

    most_budget, least_budget: bounds on a device's ρ in one round.
    """

    clip: float = Field(default=1.0, gt=0)
    dimension: float = Field(default=1.0, gt=0)
    smoothness: float = Field(default=10.0, gt=0)
    privacy_weight: float = Field(default=1e-2, gt=0)
    most_budget: float | None = Field(default=None, gt=0)
    least_budget: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most_budget and self.least_budget and self.least_budget > self.most_budget:
            raise ValueError(f"least_budget {self.least_budget} is above most_budget {self.most_budget}")
        return self

    @property
    def weights(self) -> NoiseWeights:
        """The constants of the noise problem."""
        return NoiseWeights(self.clip, self.dimension, self.smoothness, self.privacy_weight)


@dataclass(frozen=True, slots=True, eq=False)
class CellInputs:
    """Everything a schedule depends on. policy: weights of a trained policy; None for one worked out by hand."""

    cells: list[pb.Cell]
    devices: dict[str, trust_pb2.Device]
    models: int
    layout: str
    policy: Tensors | None


class CellsPlanner:
    """Schedules rounds over base stations."""

    long = True

    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    def check(self, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Refuses what cells cannot protect; the policy itself is looked up when a round is planned."""
        if privacy not in PRIVACIES:
            raise BadParameters(f"the topology cells takes privacy {', '.join(PRIVACIES)}, not {privacy!r}")
        filled = {**parameters, "topology": read_section(parameters, "topology", CellsParameters).model_dump()}
        if privacy == "optimised":
            filled["privacy"] = read_section(parameters, "privacy", OptimisedPrivacy).model_dump(exclude_none=True)
        if privacy == "uniform":
            filled["privacy"] = read_section(parameters, "privacy", UniformPrivacy).model_dump(exclude_none=True)
        return filled

    async def gather(self, request: pb.MakePlanRequest, sources: Sources) -> CellInputs:
        """Cells from the store, positions from the registry, and the policy if it is a trained one."""
        settings = read_section(parameters_of(request), "topology", CellsParameters)
        async with sources.database.reading() as tx:
            cells = await stations.every(tx)
        if not cells:
            raise NoCells("no cell is registered, so nobody can be served; put one with PUT /v1/cells/{id}")
        ids = [participant.device_id for participant in request.participants]
        reply = await sources.registry.GetDevices(trust_pb2.GetDevicesRequest(device_ids=ids))
        models = max(request.models, 1)
        layout = layout_fingerprint(cells, models, settings)
        policy = None if settings.policy in BY_HAND else await self._policies.ready(settings.policy, layout)
        return CellInputs(cells, {device.id: device for device in reply.devices}, models, layout, policy)

    @staticmethod
    def plan(request: pb.MakePlanRequest, gathered: CellInputs, previous: pb.Plan | None) -> pb.Plan:
        """One round's schedule: a seat "solo" for everybody served, "idle" with the reason for the others."""
        parameters = parameters_of(request)
        settings = read_section(parameters, "topology", CellsParameters)
        placed = [p for p in request.participants if gathered.devices[p.device_id].HasField("location")]
        users = [_user(p, gathered) for p in placed]
        optimised = request.privacy == "optimised"
        weights = read_section(parameters, "privacy", OptimisedPrivacy).weights if optimised else None
        cells = network(gathered.cells, users, gathered.models, settings, weights=weights)
        delay = draw_delays(cells.layout, np.random.default_rng([settings.seed, request.round]), 1)[0]
        waited = rounds_waited(previous)
        patience = np.array([1.0 + settings.fairness * waited.get(p.device_id, 0) for p in placed])
        eager = dataclasses.replace(cells, shares=cells.shares * patience)
        found = schedule(cells, delay, _picks(eager, delay, settings, request.round, gathered.policy))
        told = ScheduledRound(gathered.cells, cells, delay, found, _noise(request, parameters, cells, found))
        if found.status is ScheduleStatus.NOBODY:
            raise CannotPlan(told.nobody(len(request.participants)))
        seats = {p.device_id: told.seat(i, p.device_id) for i, p in enumerate(placed)}
        waiting = {d: waited.get(d, 0) + 1 for d, seat in seats.items() if seat.role == words.ROLE_IDLE}
        for device_id, rounds in waiting.items():
            seats[device_id].because += f" ({rounds} in a row)" if rounds > 1 else ""
        return pb.Plan(
            seats=[seats.get(p.device_id) or unplaced(p.device_id) for p in request.participants],
            round_seconds=max(seat.upload_seconds for seat in seats.values()),
            cell_details=_details(gathered, settings, told, request, waiting),
        )


def _noise(request: pb.MakePlanRequest, parameters: dict[str, Any], cells: Cells, found: Schedule) -> Floats:
    """Noise multiplier of every device; 0 for those not served."""
    if request.privacy == "optimised":
        privacy = read_section(parameters, "privacy", OptimisedPrivacy)
        return multipliers(cells, found, privacy, request.privacy_unit)
    uniform = read_section(parameters, "privacy", UniformPrivacy) if request.privacy == "uniform" else None
    return np.where(found.station != NOBODY, uniform.multiplier() if uniform else 0.0, 0.0)


def multipliers(cells: Cells, found: Schedule, privacy: OptimisedPrivacy, unit: words.PrivacyUnit.ValueType) -> Floats:
    """z of every served device, its noise over the clip norm; 0 for the others. Each cell solves its own problem."""
    counts = cells.samples if unit == words.PRIVACY_UNIT_EXAMPLE else np.ones_like(cells.samples)
    answer = np.zeros(len(counts))
    for b in range(len(cells.limits)):
        members = np.flatnonzero(found.station == b)
        if members.size:
            own = counts[members]
            # A budget of at most ρ asks for at least that much noise, and the reverse.
            low = noise_for_budget(np.full(len(own), privacy.most_budget or np.inf), own, privacy.clip)
            high = noise_for_budget(np.full(len(own), privacy.least_budget or 0.0), own, privacy.clip)
            answer[members] = bounded_noise(own, privacy.weights, low=low, high=high).noise * own / privacy.clip
    return answer


def rounds_waited(previous: pb.Plan | None) -> dict[str, int]:
    """Rounds in a row each device was not served, by the plan before."""
    return {} if previous is None else dict(previous.cell_details.waited)


def _user(participant: pb.Participant, given: CellInputs) -> User:
    place = given.devices[participant.device_id].location
    known = 0 <= participant.model_index < given.models
    task = participant.model_index if known else given.models
    return User(place.x_metres, place.y_metres, task, max(participant.samples, 0))


def _picks(cells: Cells, delay: Floats, settings: CellsParameters, number: int, policy: Tensors | None) -> Picks:
    if policy is not None:
        from services.topology.domain.cell_learning import policy_for  # brings torch, which other policies do without

        return policy_for(cells, policy).picks(cells, delay)
    if settings.policy == "greedy":
        return greedy(cells, delay)
    if settings.policy == "random":
        return at_random(cells, delay, np.random.default_rng([settings.seed, number, 1]))
    return matching(cells, delay)


def _details(
    given: CellInputs,
    settings: CellsParameters,
    told: ScheduledRound,
    request: pb.MakePlanRequest,
    waiting: dict[str, int],
) -> pb.CellDetails:
    """What else people may ask: the policy, what its decision is worth beside `matching`, and each cell's load."""
    best = told.found
    if settings.policy != "matching":
        best = schedule(told.cells, told.delay, matching(told.cells, told.delay))
    return pb.CellDetails(
        policy=settings.policy,
        layout=given.layout,
        status=number(told.found.status),
        reward=told.found.reward,
        matching_reward=best.reward,
        round=request.round,
        models={p.device_id: p.model_index for p in request.participants},
        cells=[
            pb.CellLoad(id=cell.id, blocks=cell.blocks, served=int((told.found.station == b).sum()))
            for b, cell in enumerate(given.cells)
        ],
        waited=waiting,
    )
