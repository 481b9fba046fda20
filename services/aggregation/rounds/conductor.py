"""The conductor moves every running task from state to state, one repeatable step at a time.

    created → running → finished | failed | cancelled
                 │
                 └─ round n:  open → closing → settling → done, then round n + 1
                                └─ quorum missed or somebody lost: opened again (attempt + 1), or the task fails

Each step ends in one transaction that checks the state it started from. Kill the process anywhere: the next start takes
the step again. With several replicas on PostgreSQL all of them conduct; whoever's transaction comes first makes the
step, the others notice and go on.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass, field

from coterie.records.words import ParticipationState, RoundState, SumState, TaskState
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from services.aggregation.domain.records import Round, Task
from services.aggregation.domain.rounds import Standing, Verdict, judge, missing_of
from services.aggregation.rounds.chairing import FINAL, Chair
from services.aggregation.rounds.closing import REPLICA_SILENT_SECONDS, Closer
from services.aggregation.rounds.ending import end_task
from services.aggregation.rounds.live import LiveRound
from services.aggregation.rounds.measuring import Measuring
from services.aggregation.rounds.opening import Opener
from services.aggregation.rounds.settling import Settler
from services.aggregation.rounds.totals import Totals
from services.aggregation.store import measurements, models, rounds, sittings, sums, tasks
from services.kit import traces
from services.kit.bell import Bell
from services.kit.clock import Clock
from services.kit.database import Database
from services.kit.errors import CoterieError, Unavailable
from services.kit.logs import get_logger
from services.kit.metrics import STEP_SECONDS
from services.kit.stubs import Upstreams
from services.kit.wire import UpstreamFault

FAULTS_BEFORE_FAILURE = 5
FIRST_BACKOFF_SECONDS = 0.1
WAIT_FOR_WORTHS_SECONDS = 5.0
"""How often a round that waits for its evaluator looks at the clock; an evaluator that ends rings."""
LIFE_CHECK_SECONDS = 5.0
"""How often the registry is asked whether those through whom others deliver still live."""
_log = get_logger()


@dataclass
class Conductor:
    """Conducts all tasks of this replica."""

    database: Database
    upstreams: Upstreams
    opener: Opener
    closer: Closer
    settler: Settler
    chair: Chair
    totals: Totals
    measuring: Measuring
    bell: Bell
    clock: Clock
    replica: str
    poll_seconds: float = 0.25
    live: dict[str, LiveRound] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _poller: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Takes up every unfinished task; on PostgreSQL, watches for what other replicas do."""
        await self._take_up()
        if not self.database.is_sqlite:
            self._poller = asyncio.create_task(self._watch_others())

    async def stop(self) -> None:
        """Stops conducting; nothing is lost."""
        workers = [*self._running.values(), *([self._poller] if self._poller else [])]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def take_up(self, task_id: str) -> None:
        """Conducts a task from now on, or wakes its conductor."""
        if task_id not in self._running or self._running[task_id].done():
            # In a context of its own: the conductor acts for the platform, not for whoever started the task.
            self._running[task_id] = asyncio.create_task(self._conduct(task_id), context=Context())
        self.bell.ring(f"task:{task_id}")

    async def _take_up(self) -> None:
        async with self.database.reading() as tx:
            unfinished = await tasks.list_unfinished(tx)
        for task in unfinished:
            self.take_up(task.id)

    async def _watch_others(self) -> None:
        seen: dict[str, int] = {}
        while True:
            try:
                async with self.database.writing() as tx:
                    await sums.see_replica(tx, self.replica, self.clock.now())
                    found = await tasks.revisions(tx)
                    others = await sums.list_replicas(tx, self.clock.now() - REPLICA_SILENT_SECONDS) - {self.replica}
                for task_id in [t for t, revision in found.items() if seen.get(t) != revision]:
                    self.take_up(task_id)
                for task_id in list(self.live) if others else ():
                    await self._refresh_states(self.live[task_id])
                    self.bell.ring(f"task:{task_id}")
                seen = found
            except Unavailable:
                _log.warning("database away, watching again soon")
            await asyncio.sleep(self.poll_seconds)

    async def _refresh_states(self, live: LiveRound) -> None:
        async with self.database.reading() as tx:
            everybody = await rounds.list_participations(tx, live.task.id, live.round.number)
        for participation in everybody:
            live.roster.states[participation.device_id] = participation.state
            if participation.state is ParticipationState.DELIVERED:
                live.roster.hear(participation.device_id, participation.members)
        live.notice()

    # --- one task ----------------------------------------------------------------------------------------------------

    async def _conduct(self, task_id: str) -> None:
        faults, backoff, doom = 0, FIRST_BACKOFF_SECONDS, ""
        refused: tuple[str, int] | None = None
        while True:
            with self.bell.listen(f"task:{task_id}") as sleeper:
                try:
                    if doom:
                        await self._end(task_id, TaskState.FAILED, doom)
                        doom = ""
                    with STEP_SECONDS.time():
                        pause = await self._step(task_id)
                    faults, backoff = 0, FIRST_BACKOFF_SECONDS
                except Unavailable as error:
                    _log.warning("step waits", task=task_id, reason=error.reason, message=error.message)
                    pause, backoff = backoff, min(backoff * 2, 3.0)
                except UpstreamFault as error:
                    # What the other service did not expect is no word about the task: it is asked again.
                    _log.error("step failed elsewhere", task=task_id, reason=error.reason, message=error.message)
                    pause, backoff = backoff, min(backoff * 2, 3.0)
                except CoterieError as error:
                    _log.error("step refused", task=task_id, reason=error.reason, message=error.message)
                    # Another replica may have moved the round meanwhile: only a refusal of the same state counts.
                    before, refused = refused, (error.reason, await self._revision(task_id))
                    pause = FIRST_BACKOFF_SECONDS
                    if before == refused:
                        pause, doom = 0.0, f"{error.reason}: {error.message}"
                except Exception:
                    faults += 1
                    _log.exception("step failed", task=task_id, faults=faults)
                    pause, backoff = backoff, min(backoff * 2, 3.0)
                    doom = "an unexpected fault; the aggregation log has it" if faults >= FAULTS_BEFORE_FAILURE else ""
                if pause is None:
                    self._forget(task_id)
                    return
                if pause:
                    await sleeper.wait(pause)

    async def _revision(self, task_id: str) -> int:
        async with self.database.reading() as tx:
            task = await tasks.find_task(tx, task_id)
        return -1 if task is None else task.revision

    async def _step(self, task_id: str) -> float | None:
        """Makes one step; seconds to wait before the next, or None when the task needs no more conducting."""
        async with self.database.reading() as tx:
            task = await tasks.find_task(tx, task_id)
            round_ = await rounds.find_round(tx, task_id, task.round) if task is not None else None
        if task is None or task.state is TaskState.CREATED:
            return None
        if task.ended:
            self._forget(task_id)
            self.running.discard(task_id)
            self.bell.ring(f"ended:{task_id}")
            return None if task.released else await self._release(task)
        self.running.add(task_id)
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
                f"done); none came in {patience:.0f} s",
            )
            return 0.0
        return 0.5

    async def _enough(self, task: Task) -> str:
        """Why the task needs no further round; empty when it does."""
        if task.round >= task.specification.rounds:
            return f"all {task.round} rounds are done"
        stop = task.specification.stop
        if stop is None:
            return ""
        async with self.database.reading() as tx:
            reason = stop.reason(await measurements.series(tx, task.id, stop.metric))
        return f"{reason}; {task.round} of {task.specification.rounds} rounds are done" if reason else ""

    async def _tend(self, task: Task, round_: Round) -> float:
        """Watches an open round until it must close, open again or fail."""
        live = await self._live(task, round_)
        if live.is_secure:
            return await self._preside(live, round_)
        now = self.clock.now()
        lost, look_again = await self._lost(live, now)
        if lost and await self.opener.open(task, round_.number, round_.attempt + 1, lost):
            self._forget(task.id)
            return 0.0
        standing = Standing(
            live.delivered,
            live.pending,
            live.way.quorum(round_.quorum, list(live.roster.states.values())),
            round_.deadline_at,
            round_.attempt,
            task.specification.max_attempts,
            live.unbearable,
            live.is_full,
        )
        verdict = judge(standing, now)
        if verdict is Verdict.WAIT:
            return max(0.01, min(round_.deadline_at, look_again) - now)
        if verdict is Verdict.CLOSE:
            await self._begin_closing(task, round_)
            return 0.0
        have = f"{standing.delivered} of {standing.quorum} updates needed came"
        have += missing_of(live.roster.states.values())
        have += f"; {standing.unbearable}" if standing.unbearable and standing.delivered else ""
        if verdict is Verdict.REOPEN and await self.opener.open(task, round_.number, round_.attempt + 1):
            self._forget(task.id)
            return 0.0
        await self._end(
            task.id,
            TaskState.FAILED,
            f"round {round_.number} missed its quorum in {round_.attempt} attempts: {have}",
        )
        return 0.0

    async def _preside(self, live: LiveRound, round_: Round) -> float:
        """Moves the secure sums of an open round on; closes it when all are told, or too few are."""
        task, now = live.task, self.clock.now()
        pause = await self.chair.step(live)
        if pause == 0.0:
            return 0.0  # something moved, and the round may have work of another attempt
        if any(sitting.state not in FINAL for sitting in live.sittings.values()):
            return pause
        alone = [live.roster.states[device] for device in live.roster.states if live.is_clear(device)]
        told = [sitting for sitting in live.sittings.values() if sitting.state is SumState.CLOSING]
        count = sum(len(sitting.surviving) for sitting in told) + alone.count(ParticipationState.DELIVERED)
        pending = alone.count(ParticipationState.ASSIGNED)
        if pending and now < round_.deadline_at and count + pending >= round_.quorum:
            return max(0.01, round_.deadline_at - now)
        unbearable = "" if live.choice.is_mean or not told else live.choice.rule.why_not(len(told))
        if count and count >= round_.quorum and not unbearable:
            await self._begin_closing(task, round_)
            return 0.0
        reasons = "; ".join(sitting.reason for sitting in live.sittings.values() if sitting.reason)
        have = f"{count} of {round_.quorum} devices needed are in its sums"
        why = "; ".join(each for each in (have, reasons, unbearable) if each)
        await self._end(task.id, TaskState.FAILED, f"round {round_.number} failed: {why}")
        return 0.0

    async def _lost(self, live: LiveRound, now: float) -> tuple[dict[str, list[str]], float]:
        """Devices that will not deliver with those they leave behind, and when to look again.

        One through whom others deliver is lost when it declines, when most of the round's time is over, or when the
        registry has revoked it or has not heard of it for a while.
        """
        round_, roster = live.round, live.roster
        if not roster.via or round_.attempt >= live.task.specification.max_attempts:
            return {}, round_.deadline_at
        patience = round_.opened_at + live.way.patience * (round_.deadline_at - round_.opened_at)
        assigned = ParticipationState.ASSIGNED
        waiting = [device for device in set(roster.via.values()) if roster.states.get(device) is assigned]
        unreachable = await self.opener.unreachable(waiting) if waiting else set()
        lost = live.way.lost(roster, overdue=now >= patience, unreachable=unreachable)
        return lost, min(patience, now + LIFE_CHECK_SECONDS) if waiting and now < patience else round_.deadline_at

    async def _begin_closing(self, task: Task, round_: Round) -> None:
        async with self.database.writing() as tx:
            closing = {"state": RoundState.CLOSING, "closer": self.replica}
            await rounds.change_round(tx, task.id, round_.number, expected=RoundState.OPEN, **closing)
            await tasks.change_task(tx, task.id)

    async def _close(self, task: Task, round_: Round) -> float:
        live = await self._live(task, round_)
        if round_.closer != self.replica and await self._is_alive(round_.closer):
            await self.closer.publish_partial(live)
            return self.poll_seconds
        if live.is_secure:
            await self.totals.close(live)
        elif not await self.closer.close(live):
            self._forget(task.id)
        return 0.0

    async def _is_alive(self, replica: str) -> bool:
        async with self.database.reading() as tx:
            return replica in await sums.list_replicas(tx, self.clock.now() - REPLICA_SILENT_SECONDS)

    async def _settle(self, task: Task, round_: Round) -> float:
        if not await self.settler.is_ready(task, round_):
            return WAIT_FOR_WORTHS_SECONDS
        exhausted = await self.settler.settle(task, round_)
        self._forget(task.id)
        self.bell.ring(f"events:{task.id}", f"letters:{task.id}")
        if exhausted:
            await self._end(task.id, TaskState.FINISHED, f"the escrow was spent in round {round_.number}")
        return 0.0

    async def _release(self, task: Task) -> float:
        await self.upstreams.ledger.ReleaseEscrow(pricing.ReleaseEscrowRequest(task_id=task.id))
        pause = await self.settler.tell_last_verdicts(task)
        if pause > 0.0:
            return pause
        async with self.database.writing() as tx:
            await tasks.change_task(tx, task.id, released=True)
        return 0.0

    async def _end(self, task_id: str, state: TaskState, reason: str) -> None:
        async with self.database.writing() as tx:
            await end_task(tx, task_id, state, reason, self.clock.now())
        self._forget(task_id)

    # --- open rounds in memory ---------------------------------------------------------------------------------------

    async def _live(self, task: Task, round_: Round) -> LiveRound:
        """The round in memory, loaded when this replica meets it for the first time."""
        live = self.live.get(task.id)
        if live is not None and (live.round.number, live.round.attempt) == (round_.number, round_.attempt):
            return live
        self._forget(task.id)
        async with self.database.reading() as tx:
            everybody = await rounds.list_participations(tx, task.id, round_.number)
            current = await models.latest_models(tx, task.id, before=round_.number)
            present = await sittings.latest_sittings(tx, task.id, round_.number)
        live = LiveRound(task, round_, everybody, [(m.digest, m.size_bytes) for m in current], present)
        self.live[task.id] = live
        await self.measuring.beside(task, round_, live.roster.states)
        # Also those that wait for letters by a plan that this one replaces.
        self.bell.ring(f"events:{task.id}", f"letters:{task.id}", *(f"device:{p.device_id}" for p in everybody))
        return live

    def _forget(self, task_id: str) -> None:
        self.measuring.forget(task_id)
        live = self.live.pop(task_id, None)
        if live is not None:
            if not live.lock.locked():  # else an update that came too late is taken out; the sums go with it
                live.close()
            self.bell.ring(f"events:{task_id}", f"letters:{task_id}")
            self.chair.release(live)
