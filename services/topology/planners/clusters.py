"""Social clusters: who shares updates with which head, from trust alone. [SCFL] "Social-Aware Clustered Federated
Learning", §IV-V.

Devices form clusters by the coalition game of `domain.formation`; within a cluster members send their update to the
head, raw when they trust it enough and noised otherwise, and a device alone adds the most noise. A plan starts from the
previous one: while the independent checker calls its clusters stable no device moves, and assignments change only with
the noise of a device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from coterie.parameters import ParameterGroup
from coterie.parameters.privacy import TrustPrivacy, UniformPrivacy
from coterie.parameters.topology import ClusterParameters
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.rpc.parameters import BadParameters, read, with_defaults
from services.kit.rpc.trust_matrix import Matrix, read_matrix
from services.topology.domain.coalition import Game, GameParameters, InvalidGame, Partition, partition_of
from services.topology.domain.formation import Formation, form
from services.topology.domain.quality import Floats, InvalidQualityModel, Measurement, QualityModel, refit
from services.topology.domain.stability import blocking_move
from services.topology.errors import CannotPlan
from services.topology.planners import formation_messages as messages
from services.topology.planners.base import Sources, alone_of, parameters_of, strangers_of
from services.topology.store import plans
from services.trust.domain.graph import TrustGraph

MOST_CLUSTERED = 10_000
"""Devices whose trust the registry tells at once; a whole matrix of them takes 800 MB here."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A task's parameters, read and checked."""

    clusters: ClusterParameters
    quality: QualityModel
    uniform: float | None
    """Noise multiplier of all devices when it does not follow from trust: 0 for privacy "none"."""

    @classmethod
    def read(cls, privacy: str, parameters: dict[str, Any]) -> Rules:
        """From a task's parameters; raises BadParameters."""
        clusters = read(ClusterParameters, parameters)
        noise, uniform = TrustPrivacy(), None
        if privacy == "trust":
            noise = read(TrustPrivacy, parameters)
        elif privacy == "uniform":
            uniform = read(UniformPrivacy, parameters).multiplier()
        else:
            uniform = 0.0
        try:
            quality = QualityModel(
                trust_threshold=noise.trust_threshold,
                budget_scale=clusters.budget_scale,
                budget_shift=clusters.budget_shift,
                failure_probability=noise.delta,
                noise_max=noise.noise_max,
                loss_fit=clusters.loss_fit,
                quality_offset=clusters.quality_offset,
                quality_slope=clusters.quality_slope,
                calibration=noise.calibration,
            )
        except InvalidQualityModel as error:
            raise BadParameters(f"parameter topology or privacy: {error.message}") from error
        return cls(clusters, quality, uniform)

    def fitted(self, measured: Sequence[Measurement]) -> tuple[Rules, pb.QualityFit | None]:
        """The rules with constants fitted to measured tasks, where the task wants that and there are enough of them."""
        if self.clusters.quality != "fitted":
            return self, None
        try:
            result = refit(measured, self.quality)
        except InvalidQualityModel as error:
            return self, pb.QualityFit(runs=len(measured), why=f"{error.message}; the constants given are used")
        fit = pb.QualityFit(
            fitted=True,
            runs=len(measured),
            loss_fit=result.model.loss_fit,
            quality_offset=result.model.quality_offset,
            quality_slope=result.model.quality_slope,
            loss_rmse=result.loss_rmse,
            accuracy_rmse=result.accuracy_rmse,
        )
        return replace(self, quality=result.model), fit

    def game(self, trust: Matrix, non_iid: list[float]) -> Game:
        """The game these rules make of trust; devices that declare no γ get the task's, which is also the maximum.

        A larger γ means a better quality, hence more weight and pay, and the platform cannot check it.
        """
        chosen = self.clusters
        game_parameters = GameParameters(
            price=chosen.price, member_cost=chosen.member_cost, head_reward=chosen.head_reward
        )
        degrees = [min(gamma or chosen.non_iid, chosen.non_iid) for gamma in non_iid]
        try:
            return Game(
                TrustGraph.from_ties(trust.size, trust.rows, trust.columns, trust.direct),
                degrees,
                quality=self.quality,
                game_parameters=game_parameters,
                direct_weight=trust.direct_weight,
                trust=trust.dense(),
            )
        except InvalidGame as error:
            raise CannotPlan(error.message) from error


@dataclass(frozen=True, slots=True)
class ClusterInputs:
    """What clusters are planned from: trust, in order of device id, and the clusters a first plan begins with, Φ(0)."""

    trust: Matrix
    start: Sequence[Sequence[str]] = ()
    measured: Sequence[Measurement] = ()


class ClustersPlanner:
    """Plans social clusters."""

    def check(self, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        noise: list[type[ParameterGroup]] = [kind for kind in (TrustPrivacy, UniformPrivacy) if privacy in kind.choices]
        filled = with_defaults(parameters, ClusterParameters, *noise)
        Rules.read(privacy, filled)
        return filled

    def is_slow(self, devices: int, parameters: dict[str, Any]) -> bool:
        """Always: it searches."""
        return True

    async def gather(self, request: pb.MakePlanRequest, sources: Sources) -> ClusterInputs:
        """Trust among the participants, through whomever it leads, and where the first plan begins."""
        participants = sorted(request.participants, key=lambda participant: participant.device_id)
        ids = [participant.device_id for participant in participants]
        if len(ids) > MOST_CLUSTERED:
            raise CannotPlan(
                f"clusters are planned for at most {MOST_CLUSTERED} devices at once, not {len(ids)}; set max_devices"
            )
        rules = Rules.read(request.privacy, parameters_of(request))
        matrix = await read_matrix(sources.trust, ids, direct_weight=rules.clusters.direct_weight)
        earlier = None
        if rules.clusters.start_from:
            async with sources.database.reading() as tx:
                earlier = await plans.find(tx, rules.clusters.start_from)
        start = messages.groups_of(earlier) if earlier is not None else []
        measured = await _measured(request.measured, sources) if rules.clusters.quality == "fitted" else []
        return ClusterInputs(matrix.without(strangers_of(participants), alone_of(participants)), start, measured)

    @staticmethod
    def plan(request: pb.MakePlanRequest, gathered: ClusterInputs, previous: pb.Plan | None) -> pb.Plan:
        participants = sorted(request.participants, key=lambda participant: participant.device_id)
        ids = [participant.device_id for participant in participants]
        rules, fit = Rules.read(request.privacy, parameters_of(request)).fitted(gathered.measured)
        game = rules.game(gathered.trust, [participant.non_iid for participant in participants])
        before = messages.groups_of(previous) if previous is not None and request.keep_if_stable else []
        formation, retained = _formed(rules.clusters, game, before, gathered.start if previous is None else [], ids)
        fresh = pb.Plan(
            assignments=messages.assignments(game, formation, ids, *_protection(rules, game, formation)),
            cluster_details=messages.details(
                game, formation, ids, retained=retained, absent=_absent(before, ids), fit=fit
            ),
            game_parameters=messages.game_parameters(game),
        )
        if previous is not None and retained and _much_alike(fresh, previous, rules.clusters.noise_tolerance):
            return pb.Plan(
                assignments=previous.assignments,
                cluster_details=previous.cluster_details,
                game_parameters=previous.game_parameters,
            )
        return fresh


async def _measured(tasks: Sequence[pb.MeasuredTask], sources: Sources) -> list[Measurement]:
    """Tasks as measured runs: with the mean noise of those who worked in their last plan."""
    runs = []
    async with sources.database.reading() as tx:
        for task in tasks:
            plan = await plans.find(tx, task.task_id)
            assignments = (
                [assignment for assignment in plan.assignments if assignment.role != words.ROLE_IDLE]
                if plan is not None
                else []
            )
            if assignments:
                noise = fmean(assignment.noise_multiplier for assignment in assignments)
                runs.append(Measurement(noise, task.non_iid, task.loss, task.accuracy))
    return runs


def _formed(
    chosen: ClusterParameters,
    game: Game,
    before: list[list[str]],
    start: Sequence[Sequence[str]],
    ids: list[str],
) -> tuple[Formation, bool]:
    """The clusters, and whether those before were kept: they are while they are stable."""
    begin = _present(before or start, ids)
    retained = bool(before) and blocking_move(game, begin) is None
    limit = 0 if retained else chosen.restarts
    return form(game, begin, chosen.method, restarts=limit, search=not retained), retained


def _present(groups: Sequence[Sequence[str]], ids: list[str]) -> Partition:
    """The groups by index in `ids`: those who are not there fall out, those who are new stand alone."""
    index = {device_id: number for number, device_id in enumerate(ids)}
    known = [[index[device_id] for device_id in group if device_id in index] for group in groups]
    alone = set(range(len(ids))) - {number for group in known for number in group}
    return partition_of([*(group for group in known if group), *([number] for number in alone)], len(ids))


def _absent(groups: list[list[str]], ids: list[str]) -> list[list[str]]:
    """What is left of the groups without `ids`: where those who take no part now sat, for when they come back."""
    present = set(ids)
    return [rest for group in groups if (rest := [device_id for device_id in group if device_id not in present])]


def _protection(rules: Rules, game: Game, formation: Formation) -> tuple[Floats, Floats, Floats]:
    """Noise, quality and solo quality of all devices: the game's when noise follows from trust, else by the task's one
    noise for all."""
    if rules.uniform is None:
        return formation.noise, formation.quality, rules.quality.quality(rules.quality.noise_max, game.non_iid)
    noise = np.full(game.size, rules.uniform)
    quality = rules.quality.quality(noise, game.non_iid)
    return noise, quality, quality


def _much_alike(fresh: pb.Plan, previous: pb.Plan, tolerance: float) -> bool:
    """Same devices, roles and heads, no noise that changed by more than the tolerance, to or from none, and the same
    qualities alone: those change with the quality model and with γ, never with trust."""
    if len(fresh.assignments) != len(previous.assignments):
        return False
    for now, then in zip(fresh.assignments, previous.assignments, strict=True):
        if (now.device_id, now.role, now.head_device_id) != (then.device_id, then.role, then.head_device_id):
            return False
        if (now.noise_multiplier == 0) != (then.noise_multiplier == 0):
            return False
        if not math.isclose(now.noise_multiplier, then.noise_multiplier, rel_tol=0, abs_tol=tolerance):
            return False
        if not math.isclose(now.solo_weight, then.solo_weight, rel_tol=1e-9):
            return False
    return True
