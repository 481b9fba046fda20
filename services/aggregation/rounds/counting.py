"""Counting a secure sum: musters become survivors, agreements let clerks answer, answers become believed shares.

What is decided is a function of what the clerks said and of time; the decision is stored before anybody is shown it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coterie.records.enums import ClerkState, EventKind, SumState
from coterie.secure_sums.protocol_lists import candidates_text, survivors_text
from coterie.secure_sums.terms import Terms, survivors_digest
from services.aggregation.domain.records import Event
from services.aggregation.domain.secure import (
    MusterAgain,
    Settled,
    TooFewSurvivors,
    Votes,
    judge_musters,
    may_join,
)
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.sittings import (
    Seat,
    Share,
    Sitting,
    agreed,
    is_told,
    missing_shares,
    told_by,
    votes_of,
)
from services.aggregation.rounds.desk import Desk
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.rounds.resitting import Resitting
from services.aggregation.store import rounds, sittings, tasks
from services.kit.database.engine import Database
from services.kit.runtime.clock import SharedClock

QUARTER = 0.25


@dataclass(frozen=True, slots=True)
class Counting:
    """Takes the next step of a counting sum."""

    database: Database
    desk: Desk
    clock: SharedClock
    resitting: Resitting

    async def step(self, live: OpenRound, sitting: Sitting, everybody: Sequence[Seat]) -> float:
        """Seconds until the next step may be due, 0 when one was made."""
        seats, spec = [seat for seat in everybody if seat.position >= 0], live.task.specification
        rules = SumRules.of(spec.parameters)
        patience = rules.patience_seconds(spec.round_seconds)
        # Time without a platform to speak to counts against nobody.
        since, deadline = (
            max(sitting.since, self.clock.began_at),
            max(sitting.deadline_at, self.clock.began_at + patience),
        )
        sitting = replace(sitting, since=since, deadline_at=deadline)
        if not sitting.survivors:
            return await self._muster(live, sitting, seats, patience)
        if agreed(seats) < sitting.read_terms.quorum:
            return await self._await_agreements(live, sitting, seats)
        async with self.database.reading() as tx:
            shares = await sittings.list_shares(tx, sitting.place)
        return await self._await_answers(live, sitting, seats, shares, rules, patience)

    # --- musters ------------------------------------------------------------------------------------------------------

    async def _muster(self, live: OpenRound, sitting: Sitting, seats: Sequence[Seat], patience: float) -> float:
        terms, now = sitting.read_terms, self.clock.now()
        here = [seat for seat in seats if seat.mustered == sitting.candidates_digest]
        over = now - sitting.since >= patience * QUARTER
        step = judge_musters(
            {seat.position: seat.ready for seat in here},
            sitting.asked,
            [each.device for each in sitting.listed],
            least=terms.least,
            quorum=terms.quorum,
            patience_over=over,
        )
        if isinstance(step, MusterAgain):
            fewer = candidates_text(each for each in sitting.listed if each.device in step.candidates)
            await self._move(live, sitting, candidates=fewer, asked=sorted(step.committee), since=now)
            return 0.0
        if isinstance(step, Settled):
            await self._settle(live, sitting, terms, step)
            return 0.0
        if isinstance(step, TooFewSurvivors):
            reason = f"the clerks can serve {len(step.common)} devices together, {terms.least} are needed"
            await self.resitting.fail(live, sitting, reason)
            return 0.0
        if now >= sitting.deadline_at:
            missing = [seat for seat in seats if seat not in here and seat.position in sitting.asked]
            reason = f"{len(here)} clerks mustered, {terms.quorum} must"
            await self.resitting.fail(live, sitting, reason, missing)
            return 0.0
        return max(0.01, (sitting.deadline_at if over else sitting.since + patience * QUARTER) - now)

    async def _settle(self, live: OpenRound, sitting: Sitting, terms: Terms, step: Settled) -> None:
        survivors = [(each.device, each.root) for each in sitting.listed if each.device in step.survivors]
        digest = survivors_digest(terms.digest, survivors)
        text = survivors_text(survivors)
        message = (
            f"sum {sitting.cohort}, sitting {sitting.sitting}: {len(step.committee)} clerks can serve the same "
            f"{len(survivors)} of {len(sitting.listed)} devices"
        )
        event = Event(live.task.id, self.clock.now(), EventKind.SUM_COUNTED, message, sitting.round)
        await self._move(live, sitting, event, survivors=text, digest=digest.hex(), since=self.clock.now())

    # --- agreements and answers ---------------------------------------------------------------------------------------

    async def _await_agreements(self, live: OpenRound, sitting: Sitting, seats: Sequence[Seat]) -> float:
        now, need = self.clock.now(), sitting.read_terms.quorum
        if now < sitting.deadline_at:
            return max(0.01, sitting.deadline_at - now)
        silent = [seat for seat in seats if not seat.agreement]
        await self.resitting.fail(live, sitting, f"{agreed(seats)} clerks agreed to the survivors, {need} must", silent)
        return 0.0

    async def _await_answers(
        self,
        live: OpenRound,
        sitting: Sitting,
        seats: Sequence[Seat],
        shares: dict[int, Share],
        rules: SumRules,
        patience: float,
    ) -> float:
        terms, now = sitting.read_terms, self.clock.now()
        votes = votes_of(terms, seats)
        if not is_told(votes, seats) and now < sitting.deadline_at:
            return max(0.01, sitting.deadline_at - now)
        silent = _silent(sitting, seats, now, patience)
        if votes.believed(unchecked=rules.unchecked) is None:
            reason = "the clerks did not tell every share alike"
            await self._fail_disputed(live, sitting, seats, votes, reason, silent)
            return 0.0
        if missing_shares(terms, seats, shares):
            # A share that was wanted late has the same time to come as one that was wanted early.
            until = max([sitting.deadline_at, *(share.asked_at + patience * QUARTER for share in shares.values())])
            if now < until:
                return max(0.01, min(until - now, patience * QUARTER))
            await self._fail_disputed(live, sitting, seats, votes, "some share sums did not come", silent)
            return 0.0
        await self._close(live, sitting, seats, votes, silent)
        return 0.0

    async def _fail_disputed(
        self,
        live: OpenRound,
        sitting: Sitting,
        seats: Sequence[Seat],
        votes: Votes,
        reason: str,
        silent: Sequence[Seat],
    ) -> None:
        async with self.database.writing() as tx:
            for seat in seats:
                if seat.position in votes.outvoted:
                    await sittings.change_seat(tx, sitting.place, seat.device_id, state=ClerkState.OUTVOTED)
            await tasks.add_events(tx, *self._blame(live, sitting, seats, votes))
        await self.resitting.fail(live, sitting, reason, silent)

    async def _close(
        self, live: OpenRound, sitting: Sitting, seats: Sequence[Seat], votes: Votes, silent: Sequence[Seat]
    ) -> None:
        """Everything to open the sum with is there: the sitting waits for the round to close."""
        told = self._blame(live, sitting, seats, votes)
        now, where = self.clock.now(), f"sum {sitting.cohort}, sitting {sitting.sitting}"
        if votes.majority:
            message = f"{where}: {len(votes.majority)} of {sitting.read_terms.shares} shares were told alike by too few"
            told.append(Event(live.task.id, now, EventKind.SUM_UNCHECKED, message, sitting.round))
        told += [
            Event(live.task.id, now, EventKind.CLERK_SILENT, "told no share sums in time", sitting.round, s.device_id)
            for s in silent
        ]
        outvoted = [seat for seat in seats if seat.position in votes.outvoted]
        async with self.database.writing() as tx:
            await rounds.find_round(tx, live.task.id, sitting.round, lock=True)
            await sittings.find_sitting(tx, sitting.place, lock=True)
            # Who has answered since the votes were counted is counted at the next step: it may have lied.
            if told_by(await sittings.list_seats(tx, sitting.place)) != told_by(seats):
                return
            if not await sittings.change_sitting(
                tx, sitting.place, expected=SumState.COUNTING, state=SumState.CLOSING, since=now
            ):
                return
            for seat in outvoted:
                await sittings.change_seat(tx, sitting.place, seat.device_id, state=ClerkState.OUTVOTED)
            for seat in silent:
                await sittings.change_seat(tx, sitting.place, seat.device_id, state=ClerkState.SILENT)
            await tasks.change_task(tx, live.task.id)
            await tasks.add_events(tx, *told)

    def _blame(self, live: OpenRound, sitting: Sitting, seats: Sequence[Seat], votes: Votes) -> list[Event]:
        message = "told a share otherwise than enough others; it is not chosen again in this task"
        return [
            Event(live.task.id, self.clock.now(), EventKind.CLERK_OUTVOTED, message, sitting.round, seat.device_id)
            for seat in seats
            if seat.position in votes.outvoted
        ]

    async def _move(self, live: OpenRound, sitting: Sitting, *told: Event, **values: object) -> None:
        """Changes a counting sitting that is as it was, and wakes its clerks."""
        async with self.database.writing() as tx:
            await rounds.find_round(tx, live.task.id, sitting.round, lock=True)
            fresh = await sittings.find_sitting(tx, sitting.place, lock=True)
            if fresh is None or (fresh.state, fresh.candidates, fresh.survivors) != (
                sitting.state,
                sitting.candidates,
                sitting.survivors,
            ):
                return
            if values:
                await sittings.change_sitting(tx, sitting.place, expected=SumState.COUNTING, **values)
            if told:
                await tasks.add_events(tx, *told)
            await tasks.change_task(tx, live.task.id)
        self.desk.call(clerk.device for clerk in sitting.read_terms.clerks)


def _silent(sitting: Sitting, seats: Sequence[Seat], now: float, patience: float) -> list[Seat]:
    """Clerks without an answer that had their time: a slower one than enough others is not silent, nor is one that
    mustered and cannot serve the survivors."""
    surviving = [device for device, _ in sitting.surviving]
    began = sitting.deadline_at - patience
    return [
        seat
        for seat in seats
        if not seat.answer
        and (now >= sitting.deadline_at if seat.mustered else now - began >= patience * QUARTER)
        and (not seat.mustered or may_join(seat.ready, surviving))
    ]
