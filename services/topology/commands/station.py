"""`python -m services.topology station [CELL]`: a base station as a separate process, for the cell named or the first
that has none.

It calls the planner and is never called. Of a round it sees its own users; of a sum, the updates it is to add, which
carry noise. It keeps its networks in `stations/cell-<id>/` of its data folder and learns on from there.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
from safetensors.numpy import load, save

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from services.kit.errors import CoterieError
from services.kit.observability.logs import get_logger
from services.kit.rpc.channels import open_channel
from services.kit.rpc.principal import STATION, set_principal
from services.kit.runtime.settings import ServiceSettings

if TYPE_CHECKING:
    from services.topology.domain.station import Choice, Sight, StationNetwork

WAIT_SECONDS = 5.0
AGAIN_SECONDS = 1.0
READ_BYTES = 4 << 20
MOST_PENDING = 64
"""Decisions whose reward may still come."""
Reader = Callable[[str, int, int], bytes]
"""`read(digest, start, length)`: bytes of a stored file."""
_log = get_logger()


class StationApp:
    """A base station, started and stopped like a service."""

    def __init__(self, settings: ServiceSettings, cell_id: str = "") -> None:
        self._wanted, self._folder = cell_id, settings.data_dir / "stations"
        self._channel = open_channel(settings, settings.topology_address)
        self._stations = rpc.StationsStub(self._channel)
        self._key: pb.StationKey | None = None
        self._policy: StationPolicy | None = None
        self._work: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Looks for a cell, and serves it from then on."""
        self._work = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        """Gives the cell back and ends."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        if self._key is not None:
            set_principal(STATION)
            try:
                await self._stations.LeaveCell(self._key, timeout=2.0)
            except CoterieError as error:
                _log.info("the cell is not given back", why=error.message)
        await self._channel.close()

    async def _serve(self) -> None:
        set_principal(STATION)
        while True:
            try:
                if self._key is None:
                    await self._take()
                else:
                    await self._answer_next(self._key)
            except CoterieError as error:
                _log.info("waiting", why=error.message)
                if error.reason == "not_this_station":
                    self._key = None
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception:  # a question that cannot be answered passes; the next may
                _log.exception("a question could not be answered")

    async def _take(self) -> None:
        taken = await self._stations.TakeCell(pb.TakeCellRequest(cell_id=self._wanted))
        self._key = pb.StationKey(cell_id=taken.cell_id, token=taken.token)
        self._policy = StationPolicy(self._folder / f"cell-{quote(taken.cell_id, safe='')}")
        _log.info("serving a cell", cell=taken.cell_id)

    async def _answer_next(self, key: pb.StationKey) -> None:
        asked = pb.NextQuestionRequest(key=key, wait_seconds=WAIT_SECONDS)
        question = await self._stations.NextQuestion(asked, timeout=WAIT_SECONDS + 20.0)
        if question.HasField("observation"):
            decision = await asyncio.to_thread(self.decided, question.observation)
            decision.key.CopyFrom(key)
            decision.question_id = question.id
            await self._stations.Decide(decision)

    def decided(self, seen: pb.Observation) -> pb.StationDecision:
        """Whom it serves, and how; in a worker thread."""
        assert self._policy is not None
        return self._policy.decide(seen)


class StationPolicy:
    """A station's networks, one for each policy it decided by, in memory and in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._networks: dict[str, StationNetwork] = {}
        self._pending: OrderedDict[tuple[str, int], tuple[Sight, Choice]] = OrderedDict()

    def decide(self, seen: pb.Observation) -> pb.StationDecision:
        """Learns what came of the decision before, then decides; in a worker thread."""
        if not seen.users:
            return pb.StationDecision()
        from services.topology.domain.station import Experience, Sight

        network = self._network(seen)
        before = self._pending.pop((seen.task_id, seen.lesson.round), None) if seen.HasField("lesson") else None
        if before is not None:
            sight, choice = before
            network.learn(Experience(sight, choice.picks, seen.lesson.reward, seen.lesson.neighbours))
            self._keep(seen.policy, network)
        view = np.array([user.view for user in seen.users], dtype=np.float32)
        delay = np.array([user.block_seconds for user in seen.users], dtype=float)
        sight = Sight(view, np.array([user.worth for user in seen.users]), delay, seen.limit_seconds)
        # Whatever was learned is tried against something else now and then; who has learned nothing follows the plan.
        rng = np.random.default_rng([seen.seed, seen.round, 2]) if network.lessons else None
        choice = network.decide(sight, rng)
        self._pending[seen.task_id, seen.round] = sight, choice
        while len(self._pending) > MOST_PENDING:
            self._pending.popitem(last=False)
        return decision_of(seen, sight, choice)

    def _network(self, seen: pb.Observation) -> StationNetwork:
        from services.topology.domain.station import restored, started

        features = len(seen.users[0].view)
        known = self._networks.get(seen.policy)
        if known is None:
            file = self._file(seen.policy)
            retained = file.read_bytes() if file.exists() else seen.weights
            known = restored(load(retained)) if retained else started(features, seen.idle)
        if known.features != features:  # the cells, and with them what is seen, are others now
            known = restored(load(seen.weights)) if seen.weights else started(features, seen.idle)
        self._networks[seen.policy] = known
        return known

    def _keep(self, policy: str, network: StationNetwork) -> None:
        file = self._file(policy)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = file.with_suffix(".new")
        staged.write_bytes(save(network.tensors()))
        staged.replace(file)

    def _file(self, policy: str) -> Path:
        return self._folder / f"{policy}.safetensors"


def decision_of(seen: pb.Observation, sight: Sight, choice: Choice) -> pb.StationDecision:
    """Whom it serves, on which blocks and with how much noise."""
    # Bring scipy, which adding up does without.
    from services.topology.domain.blocks import allocate_blocks
    from services.topology.domain.cell_noise import NoiseWeights, station_multipliers

    members = np.flatnonzero(choice.picks)
    blocks = allocate_blocks(sight.delay[members], sight.limit).block
    carried = members[blocks >= 0]
    multipliers = np.empty(0)
    if seen.HasField("noise") and carried.size:
        terms = seen.noise
        weights = NoiseWeights(terms.clip, terms.dimension, terms.smoothness, terms.privacy_weight)
        counted = [seen.users[i].counted for i in carried]
        bounds = {"most_budget": terms.most_budget or None, "least_budget": terms.least_budget or None}
        multipliers = station_multipliers(counted, weights, **bounds)
    return pb.StationDecision(
        users=carried, blocks=blocks[blocks >= 0], multipliers=multipliers, q_value=choice.q_value
    )
