"""Counting a secure sum: ready checks become survivors, agreements let clerks answer, answers become believed shares.

What is decided is a function of what the clerks said and of time; the decision is stored before anybody is shown it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coterie.records.enums import ClerkState, EventKind, SumState
from coterie.secure_sums.protocol_lists import candidates_text, survivors_text
from coterie.secure_sums.terms import Terms, survivors_digest
from services.aggregation.domain.records import Event
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.sum_decisions import (
    CheckAgain,
    Settled,
    TooFewSurvivors,
    Votes,
    judge_ready_checks,
    may_join,
)
from services.aggregation.domain.sum_sessions import (
    CommitteeMember,
    Share,
    SumSession,
    agreed,
    is_told,
    missing_shares,
    told_by,
    votes_of,
)
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.secure_sums.duty_index import DutyIndex
from services.aggregation.secure_sums.retry import Retry
from services.aggregation.store import rounds, sum_sessions, tasks
from services.kit.database.engine import Database
from services.kit.runtime.clock import SharedClock

QUARTER = 0.25


@dataclass(frozen=True, slots=True)
class SurvivorAgreement:
    """Takes the next step of a counting sum."""

    database: Database
    duty_index: DutyIndex
    clock: SharedClock
    retry: Retry

    async def step(self, live: OpenRound, session: SumSession, everybody: Sequence[CommitteeMember]) -> float:
        """Seconds until the next step may be due, 0 when one was made."""
        members, spec = [member for member in everybody if member.position >= 0], live.task.specification
        rules = SumRules.of(spec.parameters)
        patience = rules.patience_seconds(spec.round_seconds)
        # Time without a platform to speak to counts against nobody.
        since, deadline = (
            max(session.since, self.clock.began_at),
            max(session.deadline_at, self.clock.began_at + patience),
        )
        session = replace(session, since=since, deadline_at=deadline)
        if not session.survivors:
            return await self._ready_check(live, session, members, patience)
        if agreed(members) < session.read_terms.quorum:
            return await self._await_agreements(live, session, members)
        async with self.database.reading() as tx:
            shares = await sum_sessions.list_shares(tx, session.place)
        return await self._await_answers(live, session, members, shares, rules, patience)

    # --- ready checks ------------------------------------------------------------------------------------------------

    async def _ready_check(
        self, live: OpenRound, session: SumSession, members: Sequence[CommitteeMember], patience: float
    ) -> float:
        terms, now = session.read_terms, self.clock.now()
        here = [member for member in members if member.checked_list == session.candidates_digest]
        over = now - session.since >= patience * QUARTER
        step = judge_ready_checks(
            {member.position: member.ready for member in here},
            session.asked,
            [each.device for each in session.listed],
            least=terms.least,
            quorum=terms.quorum,
            patience_over=over,
        )
        if isinstance(step, CheckAgain):
            fewer = candidates_text(each for each in session.listed if each.device in step.candidates)
            await self._move(live, session, candidates=fewer, asked=sorted(step.committee), since=now)
            return 0.0
        if isinstance(step, Settled):
            await self._settle(live, session, terms, step)
            return 0.0
        if isinstance(step, TooFewSurvivors):
            reason = f"the clerks can serve {len(step.common)} devices together, {terms.least} are needed"
            await self.retry.fail(live, session, reason)
            return 0.0
        if now >= session.deadline_at:
            missing = [member for member in members if member not in here and member.position in session.asked]
            reason = f"{len(here)} clerks checked, {terms.quorum} must"
            await self.retry.fail(live, session, reason, missing)
            return 0.0
        return max(0.01, (session.deadline_at if over else session.since + patience * QUARTER) - now)

    async def _settle(self, live: OpenRound, session: SumSession, terms: Terms, step: Settled) -> None:
        survivors = [(each.device, each.root) for each in session.listed if each.device in step.survivors]
        digest = survivors_digest(terms.digest, survivors)
        text = survivors_text(survivors)
        message = (
            f"sum {session.cohort}, session {session.session_number}: {len(step.committee)} clerks can serve the same "
            f"{len(survivors)} of {len(session.listed)} devices"
        )
        event = Event(live.task.id, self.clock.now(), EventKind.SUM_COUNTED, message, session.round)
        await self._move(live, session, event, survivors=text, digest=digest.hex(), since=self.clock.now())

    # --- agreements and answers ---------------------------------------------------------------------------------------

    async def _await_agreements(
        self, live: OpenRound, session: SumSession, members: Sequence[CommitteeMember]
    ) -> float:
        now, need = self.clock.now(), session.read_terms.quorum
        if now < session.deadline_at:
            return max(0.01, session.deadline_at - now)
        silent = [member for member in members if not member.commit_signature]
        await self.retry.fail(live, session, f"{agreed(members)} clerks agreed to the survivors, {need} must", silent)
        return 0.0

    async def _await_answers(
        self,
        live: OpenRound,
        session: SumSession,
        members: Sequence[CommitteeMember],
        shares: dict[int, Share],
        rules: SumRules,
        patience: float,
    ) -> float:
        terms, now = session.read_terms, self.clock.now()
        votes = votes_of(terms, members)
        if not is_told(votes, members) and now < session.deadline_at:
            return max(0.01, session.deadline_at - now)
        silent = _silent(session, members, now, patience)
        if votes.believed(unchecked=rules.unchecked) is None:
            reason = "the clerks did not tell every share alike"
            await self._fail_disputed(live, session, members, votes, reason, silent)
            return 0.0
        if missing_shares(terms, members, shares):
            # A share that was wanted late has the same time to come as one that was wanted early.
            until = max([session.deadline_at, *(share.asked_at + patience * QUARTER for share in shares.values())])
            if now < until:
                return max(0.01, min(until - now, patience * QUARTER))
            await self._fail_disputed(live, session, members, votes, "some share sums did not come", silent)
            return 0.0
        await self._close(live, session, members, votes, silent)
        return 0.0

    async def _fail_disputed(
        self,
        live: OpenRound,
        session: SumSession,
        members: Sequence[CommitteeMember],
        votes: Votes,
        reason: str,
        silent: Sequence[CommitteeMember],
    ) -> None:
        async with self.database.writing() as tx:
            for member in members:
                if member.position in votes.outvoted:
                    await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.OUTVOTED)
            await tasks.add_events(tx, *self._blame(live, session, members, votes))
        await self.retry.fail(live, session, reason, silent)

    async def _close(
        self,
        live: OpenRound,
        session: SumSession,
        members: Sequence[CommitteeMember],
        votes: Votes,
        silent: Sequence[CommitteeMember],
    ) -> None:
        """Everything to open the sum with is there: the session waits for the round to close."""
        told = self._blame(live, session, members, votes)
        now, where = self.clock.now(), f"sum {session.cohort}, session {session.session_number}"
        if votes.majority:
            message = f"{where}: {len(votes.majority)} of {session.read_terms.shares} shares were told alike by too few"
            told.append(Event(live.task.id, now, EventKind.SUM_UNCHECKED, message, session.round))
        told += [
            Event(live.task.id, now, EventKind.CLERK_SILENT, "told no share sums in time", session.round, s.device_id)
            for s in silent
        ]
        outvoted = [member for member in members if member.position in votes.outvoted]
        async with self.database.writing() as tx:
            await rounds.find_round(tx, live.task.id, session.round, lock=True)
            await sum_sessions.find_session(tx, session.place, lock=True)
            # Who has answered since the votes were counted is counted at the next step: it may have lied.
            if told_by(await sum_sessions.list_members(tx, session.place)) != told_by(members):
                return
            if not await sum_sessions.change_session(
                tx, session.place, expected=SumState.COUNTING, state=SumState.CLOSING, since=now
            ):
                return
            for member in outvoted:
                await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.OUTVOTED)
            for member in silent:
                await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.SILENT)
            await tasks.change_task(tx, live.task.id)
            await tasks.add_events(tx, *told)

    def _blame(
        self, live: OpenRound, session: SumSession, members: Sequence[CommitteeMember], votes: Votes
    ) -> list[Event]:
        message = "told a share otherwise than enough others; it is not chosen again in this task"
        return [
            Event(live.task.id, self.clock.now(), EventKind.CLERK_OUTVOTED, message, session.round, member.device_id)
            for member in members
            if member.position in votes.outvoted
        ]

    async def _move(self, live: OpenRound, session: SumSession, *told: Event, **values: object) -> None:
        """Changes a counting session that is as it was, and wakes its clerks."""
        async with self.database.writing() as tx:
            await rounds.find_round(tx, live.task.id, session.round, lock=True)
            fresh = await sum_sessions.find_session(tx, session.place, lock=True)
            if fresh is None or (fresh.state, fresh.candidates, fresh.survivors) != (
                session.state,
                session.candidates,
                session.survivors,
            ):
                return
            if values:
                await sum_sessions.change_session(tx, session.place, expected=SumState.COUNTING, **values)
            if told:
                await tasks.add_events(tx, *told)
            await tasks.change_task(tx, live.task.id)
        self.duty_index.call(clerk.device for clerk in session.read_terms.clerks)


def _silent(
    session: SumSession, members: Sequence[CommitteeMember], now: float, patience: float
) -> list[CommitteeMember]:
    """Clerks without an answer that had their time: a slower one than enough others is not silent, nor is one that
    checked and cannot serve the survivors."""
    surviving = [device for device, _ in session.surviving]
    began = session.deadline_at - patience
    return [
        member
        for member in members
        if not member.answer
        and (now >= session.deadline_at if member.checked_list else now - began >= patience * QUARTER)
        and (not member.checked_list or may_join(member.ready, surviving))
    ]
