"""Base stations at work: who serves which cell, what each is asked, and what it answers.

A station calls, and is never called: it needs no address and no port. It takes a cell, is given a token for it, and
asks for questions one after the other; a plan or a closing round stores its question and waits for the
answer, on whichever replica each of them is. A station that lets a question pass is lost until it asks for the next.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import replace

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.database.engine import Database
from services.kit.database.rows import Tx, advisory_lock
from services.kit.notify.notifier import Notifier
from services.kit.notify.replica_notifier import ReplicaNotifier
from services.kit.observability.logs import get_logger
from services.kit.rpc.principal import require_role
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id
from services.topology.domain.records import AskedStation, StationLease
from services.topology.errors import BadAnswer, NoFreeCell, NotThisStation, StationLost, UnknownQuestion
from services.topology.store import cells, stations

LEASE_SECONDS = 15.0
"""How long a station may be silent before its cell is planned without it."""
RENEW_SECONDS = 12.0
"""A lease that lasts longer is not renewed by a call without a question."""
LONGEST_WAIT = 30.0
AGAIN_SECONDS = 0.5
"""How often a waiting call looks again, should a ring have been missed."""
KEPT_SECONDS = 60.0
MOST_USERS = 10_000
_log = get_logger()


class Stations:
    """Takes stations' calls, and asks them on behalf of plans and rounds."""

    def __init__(self, database: Database, notifier: Notifier, replica_notifier: ReplicaNotifier, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._notifier, self._replica_notifier = notifier, replica_notifier

    # --- leases ------------------------------------------------------------------------------------------------------

    async def take_cell(self, cell_id: str) -> pb.TakenCell:
        """Gives a cell without a living station to the caller; the first one where it names none."""
        require_role("station")
        token, now = secrets.token_hex(32), self._clock.now()
        async with self._database.writing() as tx:
            await advisory_lock(tx, "stations")
            known = [cell.id for cell in await cells.every(tx)]
            served = {lease.cell_id for lease in (await stations.leases(tx)).values() if lease.ends_at > now}
            free = [item for item in known if item not in served and cell_id in ("", item)]
            if not free:
                raise NoFreeCell(
                    f"{f'cell {cell_id}' if cell_id else 'every cell'} has its station, or none is registered; put one "
                    "with PUT /v1/cells/{id}, or wait until its station is lost"
                )
            await stations.forget(tx, free[0])
            await stations.put_lease(tx, StationLease(free[0], _digest(token), now + LEASE_SECONDS))
        _log.info("a station serves", cell=free[0])
        return pb.TakenCell(cell_id=free[0], token=token)

    async def leave(self, key: pb.StationKey) -> None:
        """The cell is planned for as one that never had a station."""
        async with self._database.writing() as tx:
            await self._prove(tx, key)
            await stations.forget(tx, key.cell_id)

    async def _prove(self, tx: Tx, key: pb.StationKey) -> StationLease:
        """The lease of the caller; raises unless it holds the cell's token."""
        require_role("station")
        lease = await stations.lease_of(tx, key.cell_id)
        if lease is None or not hmac.compare_digest(lease.token_digest, _digest(key.token)):
            raise NotThisStation(f"another station serves {key.cell_id}, or none does; take a cell first")
        return lease

    # --- what stations call ------------------------------------------------------------------------------------------

    async def next_question(self, key: pb.StationKey, wait_seconds: float) -> pb.StationQuestion:
        """The next question to the caller, which is heard of by this; without an id when none came in time."""
        deadline = self._clock.now() + min(max(wait_seconds, 0.0), LONGEST_WAIT)
        while True:
            with self._notifier.subscribe(_calls(key.cell_id)) as sleeper:
                async with self._database.reading() as tx:
                    lease, now = await self._prove(tx, key), self._clock.now()
                    result = await stations.next_open(tx, key.cell_id, now)
                if (result is not None or lease.ends_at < now + RENEW_SECONDS) and await self._hear(key, result):
                    assert result is not None
                    return pb.StationQuestion.FromString(result.question)
                if now >= deadline or self._notifier.is_closed:
                    return pb.StationQuestion()
                if result is None:
                    await sleeper.wait(min(deadline - now, LEASE_SECONDS / 3))

    async def _hear(self, key: pb.StationKey, question: AskedStation | None) -> bool:
        """Renew the station's lease and take the open question; return whether there is one."""
        async with self._database.writing() as tx:
            lease = await self._prove(tx, key)
            await stations.put_lease(tx, replace(lease, ends_at=self._clock.now() + LEASE_SECONDS))
            return question is not None and await stations.take(tx, question.id)

    async def decide(self, decision: pb.StationDecision) -> None:
        """A station's decision about its users."""
        counts = {len(decision.users), len(decision.blocks), len(decision.multipliers) or len(decision.users)}
        if len(counts) > 1 or len(decision.users) > MOST_USERS:
            raise BadAnswer("a decision has a block, and a multiplier where there is noise, for each of its users")
        async with self._database.writing() as tx:
            asked = await self._asked(tx, decision.key, decision.question_id)
            decision.ClearField("key")
            await self._answer(tx, asked, decision.SerializeToString())
        self._notifier.notify(_answers(asked.id))

    async def _asked(self, tx: Tx, key: pb.StationKey, question_id: str) -> AskedStation:
        """An open question to the caller."""
        await self._prove(tx, key)
        result = await stations.find(tx, question_id)
        is_open = result is not None and not result.answer and result.ends_at > self._clock.now()
        if result is None or not is_open or result.cell_id != key.cell_id:
            raise UnknownQuestion(f"no question {question_id[:80]!r} to {key.cell_id} is open; ask for the next one")
        return result

    async def _answer(self, tx: Tx, asked: AskedStation, answer: bytes) -> None:
        await stations.answer(tx, asked.id, answer)
        await self._replica_notifier.carry(tx, _answers(asked.id))

    # --- what plans and rounds ask -----------------------------------------------------------------------------------

    async def serving(self) -> dict[str, bool]:
        """Cells that have, or had, a station, and whether it is heard of."""
        async with self._database.reading() as tx:
            known, now = await stations.leases(tx), self._clock.now()
        return {cell_id: lease.ends_at > now for cell_id, lease in known.items()}

    async def ask(self, cell_id: str, question: pb.StationQuestion, wait_seconds: float) -> bytes:
        """A station's answer; raises StationLost when it is not there, or lets the question pass."""
        question.id, now = new_id("ask"), self._clock.now()
        deadline = now + min(max(wait_seconds, 0.0), LONGEST_WAIT)
        async with self._database.writing() as tx:
            lease = await stations.lease_of(tx, cell_id)
            if lease is None or lease.ends_at <= now:
                raise StationLost(f"no station serves {cell_id} now")
            data = question.SerializeToString()
            await stations.forget_old(tx, now - KEPT_SECONDS)
            await stations.ask(
                tx,
                AskedStation(
                    id=question.id,
                    cell_id=cell_id,
                    asked_at=now,
                    ends_at=deadline,
                    taken=False,
                    question=data,
                    answer=b"",
                ),
            )
            await self._replica_notifier.carry(tx, _calls(cell_id))
        self._notifier.notify(_calls(cell_id))
        answer = await self._await(question.id, deadline)
        if not answer:
            async with self._database.writing() as tx:
                # Unless it was started again meanwhile: it is another one then.
                current = await stations.lease_of(tx, cell_id)
                if current is not None and current.token_digest == lease.token_digest:
                    await stations.put_lease(tx, replace(current, ends_at=min(current.ends_at, self._clock.now())))
            _log.warning("a station let a question pass and is lost", cell=cell_id)
            raise StationLost(f"the station of {cell_id} did not answer in {wait_seconds:g} s")
        return answer

    async def _await(self, question_id: str, deadline: float) -> bytes:
        while True:
            with self._notifier.subscribe(_answers(question_id)) as sleeper:
                async with self._database.reading() as tx:
                    result = await stations.find(tx, question_id)
                left = deadline - self._clock.now()
                if result is None or result.answer or left <= 0.0:
                    return b"" if result is None else result.answer
                await sleeper.wait(min(left, AGAIN_SECONDS))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _calls(cell_id: str) -> str:
    return f"station:{cell_id}"


def _answers(question_id: str) -> str:
    return f"answer:{question_id}"
