"""The conductor moves every running task from state to state, one repeatable step at a time.

    created → running → finished | failed | cancelled
                 │
                 └─ round n:  open → closing → settling → done, then round n + 1
                                └─ quorum missed or a relay lost: open again (attempt + 1), or the task fails

Each step ends in one transaction that checks the state it started from. Kill the process anywhere: the next start
repeats the step. With several replicas on PostgreSQL all of them conduct; the first transaction to commit makes the
step, the others see the new state and go on. A lease lets one replica at a time close and settle a round.

Faults never end a task: the conductor reads the round again and retries. Only a refusal that repeats
`REFUSALS_BEFORE_FAILURE` times while the task has not changed ends it, since it would repeat for ever.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass, field

from coterie.records.enums import RoundState, TaskState
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from services.aggregation.domain.records import Round, Task
from services.aggregation.rounds.closing import Closer
from services.aggregation.rounds.ending import end_task
from services.aggregation.rounds.evaluation import Measuring
from services.aggregation.rounds.leases import Leases
from services.aggregation.rounds.opening import Opener
from services.aggregation.rounds.round_monitor import RoundMonitor
from services.aggregation.rounds.round_registry import RoundRegistry
from services.aggregation.rounds.settling import Settler
from services.aggregation.secure_sums.unmasking import Unmasking
from services.aggregation.store import measurements, rounds, sums, tasks
from services.kit.database.engine import Database
from services.kit.errors import CoterieError, PermissionDenied, Unauthenticated, Unavailable
from services.kit.notify.notifier import Notifier
from services.kit.notify.replica_notifier import ReplicaNotifier
from services.kit.observability import traces
from services.kit.observability.logs import get_logger
from services.kit.observability.metrics import STEP_FAULTS_TOTAL, STEP_SECONDS
from services.kit.rpc.grpc_errors import UpstreamFault
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import Clock

REFUSALS_BEFORE_FAILURE = 3
"""Equal refusals in a row, with the task unchanged, that end it."""
FIRST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 3.0
TEMPORARY = (Unavailable, UpstreamFault, Unauthenticated, PermissionDenied)
"""Transient errors: retry, never fail the task."""
WAIT_FOR_WORTHS_SECONDS = 5.0
"""Poll interval of a round that waits for its evaluator; an evaluator that finishes notifies at once."""
READ_ALL_SECONDS = 2.0
"""Interval at which a replica rereads its open rounds even without a notification."""
ROUND = "round:"
"""Prefix of the notification that a replica stored an update: `round:<task>:<replica>`."""
_log = get_logger()


@dataclass(frozen=True, slots=True)
class Refusals:
    """Count of equal refusals in a row while the task did not change."""

    reason: str = ""
    revision: int = 0
    message: str = ""
    count: int = 0

    def add(self, error: CoterieError, revision: int) -> Refusals:
        """Add a refusal; a different one, or one at another revision, starts the count at 1."""
        same = (self.reason, self.revision) == (error.reason, revision)
        return Refusals(error.reason, revision, error.message, self.count + 1 if same else 1)

    @property
    def failure_reason(self) -> str:
        """Return why the task must end; empty while it may go on."""
        return f"{self.reason}: {self.message}" if self.count >= REFUSALS_BEFORE_FAILURE else ""


@dataclass
class Conductor:
    """Conducts all tasks of this replica."""

    database: Database
    clients: ServiceClients
    open_rounds: RoundRegistry
    opener: Opener
    closer: Closer
    settler: Settler
    monitor: RoundMonitor
    unmasking: Unmasking
    measuring: Measuring
    notifier: Notifier
    clock: Clock
    replica: str
    leases: Leases
    replica_notifier: ReplicaNotifier
    poll_seconds: float = 0.25
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _poller: asyncio.Task[None] | None = None
    _all_read_at: float = 0.0

    async def start(self) -> None:
        """Take up every unfinished task; on PostgreSQL, watch the other replicas."""
        await self._take_up()
        if not self.database.is_sqlite:
            self._poller = asyncio.create_task(self._watch_others())

    async def stop(self) -> None:
        """Stop conducting; the database has everything needed to go on."""
        workers = [*self._running.values(), *([self._poller] if self._poller else [])]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def take_up(self, task_id: str) -> None:
        """Start conducting a task, or wake its conductor."""
        if task_id not in self._running or self._running[task_id].done():
            # A fresh context: the conductor acts for the platform, not for the principal who started the task.
            self._running[task_id] = asyncio.create_task(self._conduct(task_id), context=Context())
        self.notifier.notify(f"task:{task_id}")

    async def _take_up(self) -> None:
        async with self.database.reading() as tx:
            unfinished = await tasks.revisions(tx)
        for task_id in unfinished:
            self.take_up(task_id)

    async def _watch_others(self) -> None:
        seen: dict[str, int] = {}
        while True:
            try:
                seen = await self._look_around(seen)
            except Unavailable:
                _log.warning("database unavailable, retrying the watch of other replicas")
            except Exception:
                _log.exception("watching other replicas failed, retrying")
            await asyncio.sleep(self.poll_seconds)

    async def _look_around(self, seen: dict[str, int]) -> dict[str, int]:
        """Record a heartbeat, take up tasks that other replicas moved on, and read updates that others stored."""
        async with self.database.writing() as tx:
            await sums.see_replica(tx, self.replica, self.clock.now())
            result = await tasks.revisions(tx)
            alone = not await self.leases.living(tx) - {self.replica}
        moved = {task_id for task_id, revision in result.items() if seen.get(task_id) != revision}
        for task_id in moved:
            self.take_up(task_id)
        notified = [key.split(":", 1) for key in self.replica_notifier.take()]
        heard = {task_id for task_id, replica in notified if replica != self.replica}
        now, due = self.clock.now(), set(self.open_rounds.by_task)
        if now < self._all_read_at + READ_ALL_SECONDS and self.replica_notifier.heard.is_set():
            due &= heard | moved
        else:
            self._all_read_at = now  # a notification may have been lost
        for open_round in [self.open_rounds.by_task[task_id] for task_id in due] if not alone else ():
            await self.open_rounds.refresh(open_round)
            self.notifier.notify(f"task:{open_round.task.id}")
        return result

    # --- one task ----------------------------------------------------------------------------------------------------

    async def _conduct(self, task_id: str) -> None:
        backoff, refusals = FIRST_BACKOFF_SECONDS, Refusals()
        while True:
            with self.notifier.subscribe(f"task:{task_id}") as subscription:
                try:
                    if refusals.failure_reason:
                        await self._end(task_id, TaskState.FAILED, refusals.failure_reason)
                    with STEP_SECONDS.time():
                        pause = await self._step(task_id)
                    backoff, refusals = FIRST_BACKOFF_SECONDS, Refusals()
                except Exception as error:
                    pause, backoff = backoff, min(backoff * 2, LONGEST_BACKOFF_SECONDS)
                    refusals = await self._after(task_id, error, refusals)
                if pause is None:
                    self.open_rounds.forget(task_id)
                    return
                if pause:
                    await subscription.wait(pause)

    async def _after(self, task_id: str, error: Exception, refusals: Refusals) -> Refusals:
        """Log an error of a step; return the refusals counted with it."""
        STEP_FAULTS_TOTAL.labels(error.reason if isinstance(error, CoterieError) else "unexpected").inc()
        if not isinstance(error, CoterieError):
            _log.error("step failed, retrying", task=task_id, exc_info=error)
            return Refusals()
        _log.warning("step refused, retrying", task=task_id, reason=error.reason, message=error.message)
        if isinstance(error, TEMPORARY):
            return Refusals()
        try:
            async with self.database.reading() as tx:
                task = await tasks.find_task(tx, task_id)
        except Unavailable:
            return Refusals()
        return refusals.add(error, -1 if task is None else task.revision)

    async def _step(self, task_id: str) -> float | None:
        """Make one step; return seconds until the next, or None when the task needs no more conducting."""
        async with self.database.reading() as tx:
            task = await tasks.find_task(tx, task_id)
            round_ = await rounds.find_round(tx, task_id, task.round) if task is not None else None
        if task is None or task.state is TaskState.CREATED:
            return None
        if task.ended:
            self.open_rounds.forget(task_id)
            self.open_rounds.running.discard(task_id)
            self.notifier.notify(f"ended:{task_id}")
            return None if task.released else await self._release(task)
        self.open_rounds.running.add(task_id)
        if round_ is None or round_.state is RoundState.DONE:
            with traces.step("open round", task_id=task.id, round=task.round + 1):
                return await self._next_round(task, round_)
        if round_.state is RoundState.OPEN:
            return await self._tend(task, round_)
        if round_.state is RoundState.CLOSING:
            with traces.step("close round", task_id=task.id, round=round_.number):
                return await self._close(task, round_)
        with traces.step("settle round", task_id=task.id, round=round_.number):
            return await self._settle(task, round_)

    async def _next_round(self, task: Task, last: Round | None) -> float:
        enough = await self._enough(task)
        if enough:
            pause = 0.0 if last is None else await self.measuring.at_the_end(task, last)
            if not pause:
                await self._end(task.id, TaskState.FINISHED, enough)
            return pause
        if await self.opener.open(task, task.round + 1):
            return 0.0
        waiting_since = last.done_at if last is not None else task.started_at
        patience = task.specification.round_seconds * max(task.specification.max_attempts, 1)
        if self.clock.now() - waiting_since > patience:
            need = task.specification.min_devices
            async with self.database.reading() as tx:
                enrolled = (await tasks.count_enrolled(tx, [task.id])).get(task.id, 0)
            await self._end(
                task.id,
                TaskState.FAILED,
                f"fewer than {need} devices are enrolled and active ({enrolled} are enrolled, {task.round} rounds are "
                f"done); no more enrolled within {patience:.0f} s",
            )
            return 0.0
        return 0.5

    async def _enough(self, task: Task) -> str:
        """Return why the task needs no further round; empty when it does."""
        stop, is_last = task.specification.stop, task.round >= task.specification.rounds
        if stop is None:
            return f"all {task.round} rounds are done" if is_last else ""
        async with self.database.reading() as tx:
            series = await measurements.series(tx, task.id, stop.metric)
        if is_last:
            return f"all {task.round} rounds are done" + ("" if series else f"; {stop.unheard}")
        reason = stop.reason(series)
        return f"{reason}; {task.round} of {task.specification.rounds} rounds are done" if reason else ""

    async def _tend(self, task: Task, round_: Round) -> float:
        """Watch an open round until it must close, open again or fail."""
        result = await self.monitor.step(await self.open_rounds.load(task, round_), round_)
        if result.failure:
            await self._end(task.id, TaskState.FAILED, result.failure)
        elif result.reopened:
            self.open_rounds.forget(task.id)
        return result.pause

    async def _close(self, task: Task, round_: Round) -> float:
        open_round, held = await self.open_rounds.load(task, round_), await self.leases.take(round_)
        if held is None:
            await self.closer.publish_partial(open_round)
            return self.poll_seconds
        open_round.round = held
        if open_round.is_secure:
            await self.unmasking.close(open_round)
        elif not await self.closer.close(open_round):
            self.open_rounds.forget(task.id)
        return 0.0

    async def _settle(self, task: Task, round_: Round) -> float:
        held = await self.leases.take(round_)
        if held is None:
            return self.poll_seconds
        if not await self.settler.is_ready(task, held):
            return WAIT_FOR_WORTHS_SECONDS
        exhausted = await self.settler.settle(task, held)
        self.leases.forget(task.id)
        self.open_rounds.forget(task.id)
        self.notifier.notify(f"events:{task.id}", f"letters:{task.id}")
        if exhausted:
            await self._end(task.id, TaskState.FINISHED, f"the escrow was spent in round {round_.number}")
        return 0.0

    async def _release(self, task: Task) -> float:
        await self.clients.ledger.ReleaseEscrow(pricing.ReleaseEscrowRequest(task_id=task.id))
        pause = await self.settler.record_last_verdicts(task)
        if pause > 0.0:
            return pause
        await self.settler.clear(task)
        async with self.database.writing() as tx:
            await tasks.change_task(tx, task.id, released=True)
        return 0.0

    async def _end(self, task_id: str, state: TaskState, reason: str) -> None:
        async with self.database.writing() as tx:
            await end_task(tx, task_id, state, reason, self.clock.now())
        self.open_rounds.forget(task_id)
        self.notifier.notify(f"events:{task_id}")  # long polls wait for events even with no open round
