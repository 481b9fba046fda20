"""Questions of a round to base stations that run as separate processes, and the checks of their answers. [DPVD]

A station sees its own users: their delays to it, their samples as far as they count, and what registration makes common
knowledge. It answers whom it serves, on which block, with how much noise, and the value it gives that. The planner does
the same arithmetic for the set it names: an answer that breaks a limit, or adds another noise than the task's problem
asks for, is not valid. Values go to the other stations as one sum, and decide nothing here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.errors import CoterieError
from services.topology.domain.blocks import allocate_blocks
from services.topology.domain.cell_checkpoints import read_meta, station_part
from services.topology.domain.cell_learning_views import Prior, Views
from services.topology.domain.cell_noise import NoiseWeights, station_multipliers
from services.topology.domain.scheduling import Cells, Floats, Picks
from services.topology.usecases.policies import Tensors
from services.topology.usecases.stations import Stations

Places = NDArray[np.int64]
ANSWER_SECONDS = 10.0
"""How long a plan waits for its stations."""
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """The noise problem of a round. counted: samples that count, (device,)."""

    weights: NoiseWeights
    counted: Floats
    most_budget: float | None
    least_budget: float | None

    def multipliers(self, members: Places) -> Floats:
        """z of the devices that one station serves."""
        own = self.counted[members]
        return station_multipliers(own, self.weights, most_budget=self.most_budget, least_budget=self.least_budget)

    @property
    def terms(self) -> pb.NoiseTerms:
        """As a message to a station."""
        w = self.weights
        return pb.NoiseTerms(
            clip=w.clip,
            dimension=w.dimension,
            smoothness=w.smoothness,
            privacy_weight=w.privacy_weight,
            most_budget=self.most_budget or 0.0,
            least_budget=self.least_budget or 0.0,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """A round as its stations are asked about it. delay: (station, device, block).

    noise: the problem each solves for its own users; None = noise is not theirs to choose.
    """

    task_id: str
    round: int
    policy: str
    seed: int
    stations: list[pb.Cell]
    cells: Cells
    delay: Floats
    noise: Noise | None

    def users(self, station: int) -> Places:
        """Devices in a station's reach whose model it handles."""
        return np.flatnonzero(self.cells.handled[station])

    def observations(self, trained: Tensors | None, previous: pb.Plan | None) -> dict[int, pb.Observation]:
        """Observations by station."""
        prior: Prior = "plan" if trained is None else read_meta(trained)["config"]["prior"]
        views = Views.of(self.cells, prior, named=False)
        view = views.assemble(views.best(self.delay[None]))[0]
        reward = self.cells.reward
        worth = views.planned * self.cells.shares * reward.scale * reward.data_weight
        return {
            b: pb.Observation(
                task_id=self.task_id,
                round=self.round,
                policy=self.policy,
                weights=b"" if trained is None else save(station_part(trained, b)),
                idle=-reward.scale * reward.data_weight * self.cells.layout.tasks / len(self.stations),
                limit_seconds=float(self.cells.limits[b]),
                users=[self._user(b, i, view[b, i], float(worth[b, i])) for i in self.users(b)],
                noise=None if self.noise is None else self.noise.terms,
                lesson=_lesson(previous, self.policy, cell.id),
                seed=self.seed,
            )
            for b, cell in enumerate(self.stations)
        }

    def _user(self, station: int, device: int, view: Floats, worth: float) -> pb.StationUser:
        blocks = self.stations[station].blocks
        return pb.StationUser(
            block_seconds=self.delay[station, device, :blocks],
            view=view,
            worth=worth,
            counted=0.0 if self.noise is None else float(self.noise.counted[device]),
        )

    def fault(self, station: int, decision: pb.StationDecision) -> str:
        """Explain why a decision is not valid; empty where it is."""
        users = self.users(station)
        if any(not 0 <= user < len(users) for user in decision.users) or not _grows(decision.users):
            return "it serves devices that are not its users; serve those of the observation"
        members = users[list(decision.users)]
        best = allocate_blocks(self.delay[station, members], float(self.cells.limits[station]))
        if best.served < len(members) or not self._carries(station, members, decision, best.total_delay):
            return "its blocks do not carry whom it serves within its limit, as others would"
        if self.noise is not None and not _alike(decision.multipliers, self.noise.multipliers(members)):
            return "its noise is not what the task's noise problem asks for"
        if not abs(decision.q_value) <= self._largest_value():
            return "the value it gives its decision is beyond any reward"
        return ""

    def _carries(
        self,
        station: int,
        members: Places,
        decision: pb.StationDecision,
        least: float,
    ) -> bool:
        blocks = list(decision.blocks)
        if len(set(blocks)) < len(blocks) or any(not 0 <= b < self.stations[station].blocks for b in blocks):
            return False
        seconds = self.delay[station, members, blocks]
        within = bool((seconds <= self.cells.limits[station]).all())
        return within and float(seconds.sum()) <= least * (1.0 + TOLERANCE)

    def _largest_value(self) -> float:
        """Largest gain or loss of the team."""
        reward, users = self.cells.reward, max(len(self.cells.samples), 1)
        lost = max(reward.violation(users), reward.violation(1)) * len(self.stations)
        return 2.0 * (lost + reward.scale * reward.data_weight * self.cells.layout.tasks)

    def picks(self, decisions: Mapping[int, pb.StationDecision]) -> Picks:
        """(station, device): whether the station serves the device."""
        result = np.zeros(self.cells.handled.shape, dtype=bool)
        for station, decision in decisions.items():
            result[station, self.users(station)[list(decision.users)]] = True
        return result


async def ask_all(
    assembly: Assembly, desk: Stations, observations: Mapping[int, pb.Observation]
) -> tuple[dict[int, pb.StationDecision], dict[int, str]]:
    """Ask all stations; return valid decisions by station, and reasons of the others."""

    async def ask(station: int, observation: pb.Observation) -> pb.StationDecision | str:
        question = pb.StationQuestion(observation=observation)
        try:
            answer = await desk.ask(assembly.stations[station].id, question, ANSWER_SECONDS)
        except CoterieError as error:
            return error.message
        decision = pb.StationDecision.FromString(answer)
        return assembly.fault(station, decision) or decision

    answers = dict(zip(observations, await asyncio.gather(*(ask(*item) for item in observations.items())), strict=True))
    decisions = {station: answer for station, answer in answers.items() if isinstance(answer, pb.StationDecision)}
    return decisions, {station: answer for station, answer in answers.items() if isinstance(answer, str)}


def _lesson(previous: pb.Plan | None, policy: str, cell_id: str) -> pb.Lesson | None:
    """Outcome of the previous decision, for a station that took part in it."""
    if previous is None or previous.cell_details.policy != policy:
        return None
    details = previous.cell_details
    if cell_id not in details.q_values:
        return None
    others = math.fsum(value for cell, value in details.q_values.items() if cell != cell_id)
    # Reward of the stations' own decision, also where the round used another one.
    reward = details.decided_reward if details.instead else details.reward
    return pb.Lesson(round=details.round, reward=reward, neighbours=others)


def _grows(numbers: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _alike(received: Sequence[float], own: Floats) -> bool:
    result = np.array(received, dtype=float)
    return result.shape == own.shape and bool(np.allclose(result, own, rtol=TOLERANCE, atol=0.0))
