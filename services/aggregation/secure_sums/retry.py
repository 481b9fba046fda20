"""What follows a session that cannot continue: more time, a new committee with new terms, or the end of the sum.

An unmasked sum is never unmasked again. Without noise a device gives one update per model, because two sums over
different sets could be subtracted; so if too few devices are left that gave none, the sum is given up at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from coterie.records.enums import ClerkState, EventKind, ParticipationState, Role, RoundState, SumState
from coterie.secure_sums.terms import Participants
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.records import Event
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.sum_decisions import rejected_devices
from services.aggregation.domain.sum_sessions import CommitteeMember, SumSession
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store import rounds, sum_sessions, tasks
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Retry:
    """Extends, restarts or ends sum sessions."""

    database: Database
    clients: ServiceClients
    clock: Clock

    async def extend(self, live: OpenRound, session: SumSession, reason: str) -> None:
        """Give devices of an open session as much time again; deliveries stay."""
        spec, now = live.task.specification, self.clock.now()
        if session.attempt >= spec.max_attempts:
            await self.give_up(live, session, f"{reason} after {session.attempt} attempts")
            return
        deadline = now + spec.round_seconds
        async with self.database.writing() as tx:
            if not await _is_still(tx, session):
                return
            again = {"attempt": session.attempt + 1, "since": now, "deadline_at": deadline}
            await sum_sessions.change_session(tx, session.place, expected=SumState.OPEN, **again)
            await rounds.extend_deadline(tx, live.task.id, session.round, deadline)
            await tasks.change_task(tx, live.task.id)
            message = f"sum {session.cohort}: {reason}; the session continues and keeps its deliveries"
            await tasks.add_events(tx, Event(live.task.id, now, EventKind.ROUND_REOPENED, message, session.round))

    async def fail(
        self, live: OpenRound, session: SumSession, reason: str, silent: Sequence[CommitteeMember] = ()
    ) -> None:
        """End a session; start a new one while attempts are left and enough devices can take part."""
        spec = live.task.specification
        if session.attempt >= spec.max_attempts:
            await self.give_up(live, session, f"{reason}, after {session.attempt} attempts", silent)
            return
        async with self.database.reading() as tx:
            members = await sum_sessions.list_members(tx, session.place)
            sent = await sum_sessions.ever_masked(tx, live.task.id, session.round)
            strangers = await tasks.list_strangers(tx, live.task.id)
        cheats = cheating(session, members)
        # A device that declined the clerks may accept others; any other reason would recur.
        declined = {d for d in session.people.keys if live.roster.states.get(d) is ParticipationState.DECLINED}
        people = await self._people(session, cheats | (declined - strangers.keys()))
        terms = session.read_terms
        able = len(people.keys) if session.noise_multiplier else len(people.keys.keys() - sent)
        if able < terms.least:
            why = "" if session.noise_multiplier else ": without noise a device gives one update for a model"
            await self.give_up(live, session, f"{reason}; {able} devices could take part in a new session{why}", silent)
            return
        await self._again(live, session, people, cheats=cheats, reason=reason, silent=silent)

    async def _again(
        self,
        live: OpenRound,
        session: SumSession,
        people: Participants,
        *,
        cheats: Collection[str],
        reason: str,
        silent: Sequence[CommitteeMember],
    ) -> None:
        spec, now = live.task.specification, self.clock.now()
        rules = SumRules.of(spec.parameters)
        left = max(spec.max_attempts - session.attempt, 1)
        fresh = SumSession(
            task_id=session.task_id,
            round=session.round,
            cohort=session.cohort,
            session_number=session.session_number + 1,
            state=SumState.SELECTING,
            attempt=session.attempt + 1,
            since=now,
            deadline_at=now + rules.offer_seconds + spec.round_seconds * left,
            clip_norm=session.clip_norm,
            noise_multiplier=session.noise_multiplier,
            heaviest=session.heaviest,
            participants=people.text,
        )
        async with self.database.writing() as tx:
            if not await self._end(tx, session, reason, silent):
                return
            await sum_sessions.add_sessions(tx, [fresh])
            await self._reject(tx, live, session, cheats)
            await rounds.assign_again(tx, session.task_id, session.round, list(people.keys))
            # A closing round reopens, because one of its sums is counted again.
            await rounds.change_round(
                tx, session.task_id, session.round, expected=RoundState.CLOSING, state=RoundState.OPEN
            )
            message = f"sum {session.cohort}, session {session.session_number}: {reason}; a new session follows"
            await tasks.add_events(tx, Event(live.task.id, now, EventKind.SUM_FAILED, message, session.round))
            await tasks.change_task(tx, live.task.id)
        for device in people.keys:
            if live.roster.states.get(device) is not ParticipationState.REJECTED:
                live.roster.states[device] = ParticipationState.ASSIGNED

    async def give_up(
        self, live: OpenRound, session: SumSession, reason: str, silent: Sequence[CommitteeMember] = ()
    ) -> None:
        """End a session without a successor."""
        now = self.clock.now()
        async with self.database.writing() as tx:
            if not await self._end(tx, session, reason, silent):
                return
            alone = await self._work_alone(tx, live, session)
            what = f"{len(alone)} devices work alone instead" if alone else "it is left out"
            message = f"sum {session.cohort}, session {session.session_number}: {reason}; {what}"
            await tasks.add_events(tx, Event(live.task.id, now, EventKind.SUM_FAILED, message, session.round))
            await tasks.change_task(tx, live.task.id)

    async def _work_alone(self, tx: Tx, live: OpenRound, session: SumSession) -> list[str]:
        """Assign the fallback work to the devices of a sum that failed for good, if there is any."""
        round_ = await rounds.find_round(tx, session.task_id, session.round)
        assert round_ is not None
        items = live.strategy.secure_sums.fallback_work(live.roster, session.people.keys, round_.attempt + 1)
        result = await rounds.list_participations(tx, session.task_id, session.round)
        again = [
            replace(p, role=Role.SOLO, state=ParticipationState.ASSIGNED, work=items[p.device_id].SerializeToString())
            for p in result
            if p.device_id in items and p.state is not ParticipationState.REJECTED
        ]
        if again:
            deadline = self.clock.now() + live.task.specification.round_seconds
            await rounds.add_participations(tx, again)
            # Another attempt makes every replica load the new work; other sums are not affected.
            for state in (RoundState.OPEN, RoundState.CLOSING):
                await rounds.change_round(
                    tx,
                    session.task_id,
                    session.round,
                    expected=state,
                    state=RoundState.OPEN,
                    attempt=round_.attempt + 1,
                    deadline_at=max(deadline, round_.deadline_at),
                )
        return [p.device_id for p in again]

    async def _end(self, tx: Tx, session: SumSession, reason: str, silent: Sequence[CommitteeMember]) -> bool:
        if not await _is_still(tx, session):
            return False
        for member in silent:
            await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.SILENT)
        ended = {"state": SumState.FAILED, "reason": reason}
        return await sum_sessions.change_session(tx, session.place, expected=session.state, **ended)

    async def _reject(self, tx: Tx, live: OpenRound, session: SumSession, cheats: Collection[str]) -> None:
        if not cheats:
            return
        result = await rounds.list_participations(tx, session.task_id, session.round)
        note = "enough clerks found its masked update wrong"
        rejected = [replace(p, state=ParticipationState.REJECTED, note=note) for p in result if p.device_id in cheats]
        await rounds.rule(tx, rejected)
        for device in cheats:
            live.roster.states[device] = ParticipationState.REJECTED

    async def _people(self, session: SumSession, cheats: Collection[str]) -> Participants:
        """Return the participants of a new session: active devices with their present keys."""
        wanted = [device for device in session.people.keys if device not in cheats]
        keys: dict[str, bytes] = {}
        for start in range(0, len(wanted), 10_000):
            request = trust.GetDevicesRequest(device_ids=wanted[start : start + 10_000])
            for device in (await self.clients.registry.GetDevices(request)).devices:
                if device.state == words.DEVICE_STATE_ACTIVE:
                    keys[device.id] = device.signing_key
        return Participants.of(keys)


def cheating(session: SumSession, members: Sequence[CommitteeMember]) -> frozenset[str]:
    """Return devices that at least t clerks fault, so that one of these clerks is honest."""
    faults = {member.position: member.faults for member in members if member.position >= 0}
    return rejected_devices(faults, session.read_terms.threshold) if session.terms else frozenset()


async def _is_still(tx: Tx, session: SumSession) -> bool:
    """Lock round and session; return whether the session's state is unchanged."""
    await rounds.find_round(tx, session.task_id, session.round, lock=True)
    fresh = await sum_sessions.find_session(tx, session.place, lock=True)
    return fresh is not None and (fresh.state, fresh.attempt) == (session.state, session.attempt)
