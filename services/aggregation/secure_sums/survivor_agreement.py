"""Stores what a committee decides while a secure sum is counted: candidates, survivors, and shares to believe.

Each method locks the round and the session and changes them only if the session is still as it was when the step was
chosen. A decision is stored before a clerk sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.records.enums import ClerkState, EventKind, SumState
from coterie.secure_sums.protocol_lists import candidates_text, survivors_text
from coterie.secure_sums.terms import survivors_digest
from services.aggregation.domain.records import Event
from services.aggregation.domain.sum_decisions import CheckAgain, Settled, Votes
from services.aggregation.domain.sum_sessions import CommitteeMember, SumSession, reported_digests
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.secure_sums.duty_index import DutyIndex
from services.aggregation.secure_sums.retry import Retry
from services.aggregation.secure_sums.state_machine import Fail, Unmask
from services.aggregation.store import rounds, sum_sessions, tasks
from services.kit.database.engine import Database
from services.kit.runtime.clock import SharedClock

OUTVOTED = "reported a share sum that enough other clerks contradict; it is not chosen again in this task"


@dataclass(frozen=True, slots=True)
class SurvivorAgreement:
    """Carries out the steps of a counting sum."""

    database: Database
    duty_index: DutyIndex
    clock: SharedClock
    retry: Retry

    async def repeat_ready_check(self, live: OpenRound, session: SumSession, check: CheckAgain) -> None:
        """Show fewer clerks fewer candidates."""
        fewer = candidates_text(item for item in session.listed if item.device in check.candidates)
        asked = sorted(check.committee)
        await self._change(live, session, candidates=fewer, asked=asked, since=self.clock.now())

    async def fix_survivors(self, live: OpenRound, session: SumSession, settled: Settled) -> None:
        """Store the survivors; they never change within a session."""
        survivors = [(item.device, item.root) for item in session.listed if item.device in settled.survivors]
        digest = survivors_digest(session.read_terms.digest, survivors)
        message = (
            f"{session.name}: {len(settled.committee)} clerks can serve the same "
            f"{len(survivors)} of {len(session.listed)} devices"
        )
        now, text = self.clock.now(), survivors_text(survivors)
        event = Event(live.task.id, now, EventKind.SUM_COUNTED, message, session.round)
        await self._change(live, session, event, survivors=text, digest=digest.hex(), since=now)

    async def fail(self, live: OpenRound, session: SumSession, members: Sequence[CommitteeMember], step: Fail) -> None:
        """End the session, and record members that were outvoted."""
        if step.votes is not None:
            async with self.database.writing() as tx:
                for member in _outvoted(members, step.votes):
                    await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.OUTVOTED)
                await tasks.add_events(tx, *self._blame(live, session, _outvoted(members, step.votes)))
        await self.retry.fail(live, session, step.reason, step.silent)

    async def accept_shares(
        self, live: OpenRound, session: SumSession, members: Sequence[CommitteeMember], step: Unmask
    ) -> None:
        """Move the session to closing: it waits for the round to remove the masks."""
        outvoted, now = _outvoted(members, step.votes), self.clock.now()
        events = self._blame(live, session, outvoted)
        if step.votes.majority:
            few = f"fewer than {session.read_terms.threshold} clerks prove"
            message = f"{session.name}: {few} {len(step.votes.majority)} of {session.read_terms.shares} share sums"
            events.append(Event(live.task.id, now, EventKind.SUM_UNCHECKED, message, session.round))
        late = "reported no share sums in time"
        events += [
            Event(live.task.id, now, EventKind.CLERK_SILENT, late, session.round, device_id=member.device_id)
            for member in step.silent
        ]
        async with self.database.writing() as tx:
            await rounds.find_round(tx, live.task.id, session.round, lock=True)
            await sum_sessions.find_session(tx, session.place, lock=True)
            # An answer that arrived since the votes were counted is counted at the next step: it may be a lie.
            if reported_digests(await sum_sessions.list_members(tx, session.place)) != reported_digests(members):
                return
            if not await sum_sessions.change_session(
                tx, session.place, expected=SumState.COUNTING, state=SumState.CLOSING, since=now
            ):
                return
            for member in outvoted:
                await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.OUTVOTED)
            for member in step.silent:
                await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.SILENT)
            await tasks.change_task(tx, live.task.id)
            await tasks.add_events(tx, *events)

    def _blame(self, live: OpenRound, session: SumSession, outvoted: Sequence[CommitteeMember]) -> list[Event]:
        now = self.clock.now()
        return [
            Event(live.task.id, now, EventKind.CLERK_OUTVOTED, OUTVOTED, session.round, device_id=member.device_id)
            for member in outvoted
        ]

    async def _change(self, live: OpenRound, session: SumSession, *events: Event, **values: object) -> None:
        """Change a counting session that is still as it was, and wake its clerks."""
        async with self.database.writing() as tx:
            await rounds.find_round(tx, live.task.id, session.round, lock=True)
            fresh = await sum_sessions.find_session(tx, session.place, lock=True)
            seen = (session.state, session.candidates, session.survivors)
            if fresh is None or (fresh.state, fresh.candidates, fresh.survivors) != seen:
                return
            await sum_sessions.change_session(tx, session.place, expected=SumState.COUNTING, **values)
            await tasks.add_events(tx, *events)
            await tasks.change_task(tx, live.task.id)
        self.duty_index.wake(clerk.device for clerk in session.read_terms.clerks)


def _outvoted(members: Sequence[CommitteeMember], votes: Votes) -> list[CommitteeMember]:
    return [member for member in members if member.position in votes.outvoted]
