"""Scheduling policies: trained in worker processes, kept as checkpoints, ready to answer a round in milliseconds.

A restarted planner resumes every policy in training from its last checkpoint.
Training is seeded, so that two replicas that both go on arrive at the same policy.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from typing import Any

from cachetools import LRUCache
from numpy.typing import NDArray

from coterie.parameters.topology import RadioParameters
from coterie.records.enums import PolicyLearner, PolicyState
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.database.blobs import BlobStore
from services.kit.database.engine import Database
from services.kit.observability.logs import get_logger
from services.kit.rpc.enums import number, word
from services.kit.rpc.parameters import from_struct, validate
from services.kit.rpc.principal import require_role
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id
from services.kit.runtime.settings import ServiceSettings
from services.topology.commands.train_policy import Job, read_tensors
from services.topology.domain.cell_learning_views import LEAST_SET, check_sets
from services.topology.domain.records import StoredPolicy
from services.topology.errors import BadPolicy, NoCells, PolicyNotUsable, UnknownPolicy
from services.topology.planners.cell_network import layout_fingerprint
from services.topology.store import cells as stations
from services.topology.store import policies

WORKERS = 1
"""Trainings at a time; others wait. A training takes one core."""
MOST_USERS, MOST_MODELS, MOST_STEPS = 200, 64, 100_000
KEPT_IN_MEMORY = 8
COMMAND = (sys.executable, "-m", "services.topology.commands.train_policy")
Tensors = Mapping[str, NDArray[Any]]
_log = get_logger()


class Policies:
    """Trains policies and hands out ready ones."""

    def __init__(self, database: Database, blobs: BlobStore, settings: ServiceSettings, clock: Clock) -> None:
        self._database, self._blobs, self._settings, self._clock = database, blobs, settings, clock
        self._turn = asyncio.Semaphore(WORKERS)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ready: LRUCache[str, tuple[str, Tensors]] = LRUCache(KEPT_IN_MEMORY)

    async def start(self) -> None:
        """Goes on with every unfinished training."""
        async with self._database.reading() as tx:
            known = await policies.every(tx)
        for policy in reversed(known):
            if policy.state is PolicyState.TRAINING:
                self._begin(policy.id)

    async def stop(self) -> None:
        """Stops the workers; what they were at stays unfinished."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def train(self, request: pb.TrainPolicyRequest) -> pb.Policy:
        """Starts training for the present cells."""
        require_role("admin")
        _check(request)
        radio = validate(RadioParameters, {"radio": from_struct(request.radio)})
        async with self._database.writing() as tx:
            cells = await stations.every(tx)
            if not cells:
                raise NoCells("no cell is registered; put one with PUT /v1/cells/{id} before training a policy for it")
            if request.network == words.POLICY_NETWORK_SET:
                check_sets(request.users, LEAST_SET, max(cell.blocks for cell in cells))
            policy = StoredPolicy(
                id=new_id("pol"),
                learner=word(PolicyLearner, request.learner or words.POLICY_LEARNER_VDN),
                layout=layout_fingerprint(cells, request.models, radio),
                state=PolicyState.TRAINING,
                progress=0.0,
                reward=0.0,
                created_at=self._clock.now(),
                reason="",
                digest="",
                request=Job(request, tuple(cells)).to_bytes(),
            )
            await policies.add(tx, policy)
        self._begin(policy.id)
        return _message(policy)

    async def list(self) -> list[pb.Policy]:
        """All policies, newest first."""
        require_role("admin", "publisher")
        async with self._database.reading() as tx:
            return [_message(policy) for policy in await policies.every(tx)]

    async def blobs(self) -> Sequence[str]:
        """Digests of every policy's weights and checkpoints."""
        require_role("admin")
        async with self._database.reading() as tx:
            return [policy.digest for policy in await policies.every(tx) if policy.digest]

    async def ready(self, policy_id: str, layout: str) -> Tensors:
        """The weights of a ready policy, if it was trained for this layout."""
        known = self._ready.get(policy_id)
        if known is None:
            async with self._database.reading() as tx:
                policy = await policies.find(tx, policy_id)
            if policy is None:
                raise UnknownPolicy(f"no policy {policy_id!r}; GET /v1/policies lists those there are")
            if policy.state is not PolicyState.READY:
                why = policy.reason or f"{policy.progress:.0%} of its training is done"
                raise PolicyNotUsable(f"policy {policy_id} is {policy.state}: {why}; use matching meanwhile")
            known = self._ready[policy_id] = policy.layout, await read_tensors(self._blobs, policy.digest)
        trained_for, tensors = known
        if trained_for != layout:
            raise PolicyNotUsable(
                f"policy {policy_id} was trained for layout {trained_for[:12]}, the cells, the task's models and its "
                f"radio constants make {layout[:12]}; train one for these with POST /v1/policies, or use matching"
            )
        return tensors

    # --- workers -----------------------------------------------------------------------------------------------------

    def _begin(self, policy_id: str) -> None:
        task = asyncio.create_task(self._train(policy_id), name=policy_id)
        self._running[policy_id] = task
        task.add_done_callback(lambda _: self._running.pop(policy_id, None))

    async def _train(self, policy_id: str) -> None:
        async with self._turn:
            try:
                failure = await self._work(policy_id)
            except Exception as error:  # a background task has no caller to tell: the row says why
                _log.exception("policy training failed", policy=policy_id)
                failure = f"the training could not be run: {type(error).__name__}"
            ended: dict[str, Any] = {"state": PolicyState.READY, "progress": 1.0}
            if failure:
                ended = {"state": PolicyState.FAILED, "reason": failure}
            async with self._database.writing() as tx:
                await policies.change(tx, policy_id, **ended)

    async def _work(self, policy_id: str) -> str:
        """Runs a worker process to its end; why it failed, or nothing."""
        async with self._database.reading() as tx:
            policy = await policies.find(tx, policy_id)
        if policy is None:
            raise UnknownPolicy(f"policy {policy_id} is gone")
        stored = Job.from_bytes(policy.request)
        job = Job(stored.request, stored.cells, policy.digest)
        place = {"data_dir": str(self._settings.data_dir.resolve()), "blob_url": self._settings.blob_url}
        worker = await asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        try:
            return await self._listen(worker, policy, job.to_bytes(**place))
        except BaseException:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
            raise

    async def _listen(self, worker: asyncio.subprocess.Process, policy: StoredPolicy, job: bytes) -> str:
        """Gives a worker its job and writes down what it tells; its last words if it failed."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdin.write(job + b"\n")  # and left open: when this process is gone, so is the worker
        complaint = asyncio.create_task(worker.stderr.read())
        checkpoint = policy.digest
        async for line in worker.stdout:
            checkpoint = await self._note(policy.id, json.loads(line), checkpoint)
        last_words = (await complaint).decode(errors="replace").strip().splitlines()
        code = await worker.wait()
        return "" if code == 0 else (last_words or [f"the worker ended with code {code}"])[-1][:500]

    async def _note(self, policy_id: str, evaluation: dict[str, Any], before: str) -> str:
        """Writes an evaluation down and forgets the checkpoint before it; the new checkpoint."""
        digest, done = str(evaluation["digest"]), evaluation["step"] / evaluation["steps"]
        async with self._database.writing() as tx:
            await policies.change(tx, policy_id, progress=done, reward=float(evaluation["reward"]), digest=digest)
        if before and before != digest:
            await self._blobs.delete(before)
        return digest


def _check(request: pb.TrainPolicyRequest) -> None:
    enums = (("learner", words.PolicyLearner), ("penalty", words.PolicyPenalty), ("network", words.PolicyNetwork))
    for name, enum in enums:
        if getattr(request, name) not in enum.values():
            raise BadPolicy(
                f"{name} {getattr(request, name)} is a newer version's; upgrade the planner, or leave it out"
            )
    for name, least, most in (("users", 1, MOST_USERS), ("models", 1, MOST_MODELS), ("steps", 0, MOST_STEPS)):
        value = getattr(request, name)
        if not least <= value <= most:
            raise BadPolicy(f"{name} must be from {least} to {most}, not {value}")
    if request.seed < 0:
        raise BadPolicy(f"seed must be 0 or more, not {request.seed}")


def _message(policy: StoredPolicy) -> pb.Policy:
    asked = Job.from_bytes(policy.request).request
    return pb.Policy(
        id=policy.id,
        learner=number(policy.learner),
        layout=policy.layout,
        state=number(policy.state),
        progress=policy.progress,
        reward=policy.reward,
        created_at=policy.created_at,
        reason=policy.reason,
        network=asked.network or words.POLICY_NETWORK_POINTER,
        penalty=asked.penalty or words.POLICY_PENALTY_DYNAMIC,
    )
