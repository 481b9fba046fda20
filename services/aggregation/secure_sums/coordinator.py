"""Carries out the steps of every secure sum of an open round (`state_machine.next_step`).

Each step ends in one transaction that locks the round and the session and checks the state it started from, so a step
that two replicas take, or that a crash interrupts, has one effect.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.records.enums import ClerkState, EventKind, ParticipationState, SumState
from coterie.secure_sums.protocol_lists import candidates_text
from coterie.secure_sums.terms import NamedClerk, Terms
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain import secure_terms
from services.aggregation.domain.records import Event
from services.aggregation.domain.secure_terms import SumRules, make_terms
from services.aggregation.domain.sum_sessions import CommitteeMember, Share, SumSession
from services.aggregation.errors import NoGrid
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.secure_sums.committee_selection import CommitteeSelection
from services.aggregation.secure_sums.duty_index import DutyIndex
from services.aggregation.secure_sums.retry import Retry
from services.aggregation.secure_sums.state_machine import (
    IDLE_SECONDS,
    BeginReadyCheck,
    ExtendDeliveries,
    Facts,
    Fail,
    FixSurvivors,
    OpenForDeliveries,
    RepeatReadyCheck,
    SelectCommittee,
    Unmask,
    Wait,
    next_step,
)
from services.aggregation.secure_sums.survivor_agreement import SurvivorAgreement
from services.aggregation.store import rounds, sum_sessions, tasks
from services.aggregation.store.model_files import ModelFiles
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.notify.notifier import Notifier
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import SharedClock

FINAL = (SumState.CLOSING, SumState.FAILED)
"""States in which the latest session of a sum waits for no clerk; a failed one without a successor is given up."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Moves the sum sessions of open rounds from state to state."""

    database: Database
    clients: ServiceClients
    model_files: ModelFiles
    duty_index: DutyIndex
    notifier: Notifier
    clock: SharedClock
    """Time before this process began counts against no clerk."""

    async def step(self, live: OpenRound) -> float:
        """Carry out the next step of every sum; return the seconds until one may be due, 0 after a change."""
        members = await self._look(live)
        pauses = [IDLE_SECONDS]
        for session in list(live.sum_sessions.values()):
            pauses.append(
                await self._step(live, session, [member for member in members if member.place == session.place])
            )
        return min(pauses)

    async def _look(self, live: OpenRound) -> list[CommitteeMember]:
        """Load the sessions, wake clerks and the devices of sums that have opened, and return the round's members."""
        async with self.database.reading() as tx:
            present = await sum_sessions.latest_sessions(tx, live.task.id, live.round.number)
            members = await sum_sessions.list_round_members(tx, live.task.id, live.round.number)
        known = {cohort: (session.session_number, session.state) for cohort, session in live.sum_sessions.items()}
        live.set_sum_sessions(present)
        for cohort, session in present.items():
            moved = known.get(cohort) != (session.session_number, session.state)
            if moved and session.state is SumState.OPEN:
                self.notifier.notify(*(f"device:{device}" for device in session.people.keys))
            if moved and session.state is SumState.COUNTING:
                # The replica that changed the session has woken its own clerks; others wait here.
                self.duty_index.wake(clerk.device for clerk in session.read_terms.clerks)
        undismissed = {member.device_id for member in members if not member.forget_sent}
        if undismissed - self.duty_index.devices:
            self.duty_index.wake(undismissed)
        return members

    def release(self, live: OpenRound) -> None:
        """Wake the clerks of a round that is over, so that they forget it."""
        written = (session.read_terms for session in live.sum_sessions.values() if session.terms)
        self.duty_index.wake(clerk.device for terms in written for clerk in terms.clerks)

    async def _step(self, live: OpenRound, session: SumSession, members: Sequence[CommitteeMember]) -> float:
        """Choose the next step of a sum and carry it out; seconds until one may be due, 0 after a change."""
        step = next_step(session, members, self.clock.now(), await self._facts(live, session))
        if isinstance(step, Wait):
            return step.seconds
        agreement = SurvivorAgreement(self.database, self.duty_index, self.clock, self.retry)
        match step:
            case SelectCommittee():
                await self._choose(live, session, step)
            case OpenForDeliveries():
                await self._open(live, session, step.serving)
            case ExtendDeliveries():
                await self.retry.extend(live, session, step.reason)
            case BeginReadyCheck():
                await self._begin_ready_check(live, session)
            case RepeatReadyCheck():
                await agreement.repeat_ready_check(live, session, step.check)
            case FixSurvivors():
                await agreement.fix_survivors(live, session, step.settled)
            case Unmask():
                await agreement.accept_shares(live, session, members, step)
            case Fail():
                await agreement.fail(live, session, members, step)
        return 0.0

    async def _facts(self, live: OpenRound, session: SumSession) -> Facts:
        spec, shares = live.task.specification, dict[int, Share]()
        if session.state is SumState.COUNTING and session.survivors:
            async with self.database.reading() as tx:
                shares = await sum_sessions.list_shares(tx, session.place)
        rules = SumRules.of(spec.parameters)
        states = Counter(live.roster.states.get(device) for device in session.people.keys)
        return Facts(
            began_at=self.clock.began_at,
            offer_seconds=live.strategy.secure_sums.committee(len(session.people.keys)).offer_seconds,
            clerk_seconds=rules.patience_seconds(spec.round_seconds),
            unchecked=rules.unchecked,
            delivered=states[ParticipationState.DELIVERED],
            pending=states[ParticipationState.ASSIGNED],
            declined=states[ParticipationState.DECLINED],
            shares=shares,
        )

    @property
    def retry(self) -> Retry:
        """What follows a session that failed."""
        return Retry(self.database, self.clients, self.clock)

    @property
    def selection(self) -> CommitteeSelection:
        """Chooses clerks."""
        return CommitteeSelection(self.database, self.clients, self.clock)

    # --- selection ----------------------------------------------------------------------------------------------------

    async def _choose(self, live: OpenRound, session: SumSession, step: SelectCommittee) -> None:
        """Choose a committee and store it, or give the sum up where there is none."""
        rules = live.strategy.secure_sums.committee(len(session.people.keys))
        serving, silent = step.serving, step.silent
        selection = await self.selection.choose(live, session, rules, silent)
        committee, unwilling = selection.committee, selection.unwilling
        if not committee.members:
            await self.retry.give_up(live, session, selection.too_few(rules), silent)
            return
        chosen = {member.device_id: member for member in committee.members}
        people = session.people.without(unwilling)
        least = max(secure_terms.LEAST, live.round.quorum if live.is_whole else 0)
        if len(people.keys) < least:
            await self.retry.give_up(live, session, _unwilling(len(people.keys), least, unwilling), silent)
            return
        now = self.clock.now()
        fresh = [
            CommitteeMember(
                task_id=session.task_id,
                round=session.round,
                cohort=session.cohort,
                session_number=session.session_number,
                device_id=member.device_id,
                owner_id=member.owner_id,
                signing_key=member.signing_key.hex(),
                state=ClerkState.SERVING,
                position=-1,
                selected_at=now,
            )
            for member in committee.members
        ]
        async with self.database.writing() as tx:
            if not await self._is_still(tx, session) or await _serving(tx, session) != {s.device_id for s in serving}:
                return  # another replica has selected clerks meanwhile: a sum has one committee
            for member in silent:
                await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.SILENT)
            for member in serving:
                if member not in silent and member.device_id not in chosen:
                    await sum_sessions.change_member(tx, session.place, member.device_id, state=ClerkState.RELEASED)
            await sum_sessions.add_members(tx, fresh)
            noise = live.strategy.secure_sums.noise_for_trust(session.noise_multiplier, committee.least_trust)
            await sum_sessions.change_session(
                tx, session.place, expected=SumState.SELECTING, participants=people.text, noise_multiplier=noise
            )
            for device in unwilling:
                await rounds.decline(tx, live.task.id, session.round, device, UNWILLING)
            await tasks.change_task(tx, live.task.id)
            await tasks.add_events(tx, *_selected(live.task.id, session, committee, silent, now))
            await tasks.add_events(tx, *_left_out(live.task.id, session, unwilling, now))
        for device in unwilling:
            live.roster.states[device] = ParticipationState.DECLINED
        self.duty_index.wake([*chosen, *(member.device_id for member in serving)])
        self.notifier.notify(f"events:{live.task.id}")

    # --- open ---------------------------------------------------------------------------------------------------------

    async def _open(self, live: OpenRound, session: SumSession, serving: Sequence[CommitteeMember]) -> None:
        """Write the terms, once, so that devices can fetch them."""
        rules = live.strategy.secure_sums.committee(len(session.people.keys))
        spec, now = live.task.specification, self.clock.now()
        clerks = sorted(serving, key=lambda member: member.device_id.encode())
        terms = await asyncio.to_thread(self._terms, live, session, rules, clerks)
        deadline = now + spec.round_seconds
        async with self.database.writing() as tx:
            if not await self._is_still(tx, session):
                return
            for position, member in enumerate(clerks):
                await sum_sessions.change_member(tx, session.place, member.device_id, position=position)
            opened = {"state": SumState.OPEN, "terms": terms.text, "since": now, "deadline_at": deadline}
            await sum_sessions.change_session(tx, session.place, expected=SumState.SELECTING, **opened)
            await rounds.extend_deadline(tx, live.task.id, live.round.number, deadline)
            await tasks.change_task(tx, live.task.id)
            message = (
                f"{session.name}: {len(clerks)} clerks offered keys; at least {terms.least} of {terms.count} "
                f"devices must be in the sum, {terms.honest} of them are counted on to be honest"
            )
            await tasks.add_events(tx, Event(live.task.id, now, EventKind.SUM_OPENED, message, session.round))
        self.notifier.notify(f"events:{live.task.id}")

    def _terms(self, live: OpenRound, session: SumSession, rules: SumRules, clerks: Sequence[CommitteeMember]) -> Terms:
        """Make the terms; `NoGrid` if no grid fits. Runs in a worker thread."""
        spec, (digest, size) = live.task.specification, live.bases[0]
        count = len(session.people.keys)
        quorum = max(spec.quorum, min(spec.min_devices, count) / count) if live.is_whole else spec.quorum
        honest = rules.honest(secure_terms.least_survivors(quorum, count))
        named = [
            NamedClerk(
                member.device_id,
                member.owner_id,
                bytes.fromhex(member.signing_key),
                bytes.fromhex(member.session_key),
                bytes.fromhex(member.offer),
            )
            for member in clerks
        ]
        try:
            return make_terms(
                session.place,
                live.round.plan_version,
                secure_terms.Model(
                    digest, self.model_files.layout(digest, size).elements + live.strategy.secure_sums.extra_elements
                ),
                participants=session.people,
                clerks=named,
                rules=rules,
                quorum=quorum,
                clip_norm=session.clip_norm,
                noise_multiplier=live.strategy.secure_sums.terms_noise(session.noise_multiplier, honest),
                heaviest=session.heaviest,
                scale=live.strategy.secure_sums.scale,
            )
        except secure_terms.NoGrid as error:
            raise NoGrid(str(error)) from error

    async def _begin_ready_check(self, live: OpenRound, session: SumSession) -> None:
        """Ask the clerks which deliveries of active devices they can serve."""
        terms = session.read_terms
        devices = await self.selection.devices(list(session.people.keys))
        active = {device.id for device in devices if device.state == words.DEVICE_STATE_ACTIVE}
        spec, now = live.task.specification, self.clock.now()
        patience = SumRules.of(spec.parameters).patience_seconds(spec.round_seconds)
        async with self.database.writing() as tx:
            if not await self._is_still(tx, session):
                return
            masked = await sum_sessions.list_masked(tx, session.place)
            candidates = [item.candidate for item in masked if item.device_id in active]
            await sum_sessions.change_session(
                tx,
                session.place,
                expected=SumState.OPEN,
                state=SumState.COUNTING,
                candidates=candidates_text(candidates),
                asked=list(range(len(terms.clerks))),
                since=now,
                deadline_at=now + patience,
            )
            await tasks.change_task(tx, live.task.id)
        self.duty_index.wake(clerk.device for clerk in terms.clerks)

    async def _is_still(self, tx: Tx, session: SumSession) -> bool:
        """Lock round and session; return whether the session is unchanged."""
        await rounds.find_round(tx, session.task_id, session.round, lock=True)
        fresh = await sum_sessions.find_session(tx, session.place, lock=True)
        return fresh is not None and (fresh.state, fresh.candidates) == (session.state, session.candidates)


UNWILLING = "it does not accept these clerks: let it verify them, or enrol more devices that all participants know"
"""Note for a device that named other clerks, or declined some of these before."""


async def _serving(tx: Tx, session: SumSession) -> set[str]:
    members = await sum_sessions.list_members(tx, session.place)
    return {member.device_id for member in members if member.state is ClerkState.SERVING}


def _selected(
    task_id: str, session: SumSession, committee: topology.Committee, silent: Sequence[CommitteeMember], now: float
) -> list[Event]:
    names = ", ".join(member.device_id for member in committee.members)
    message = (
        f"{session.name}: selected clerks {names}; the least trust of a participant in them is "
        f"{committee.least_trust:.2f}"
    )
    late = "offered no key in time and is replaced"
    gone = [
        Event(task_id, now, EventKind.CLERK_SILENT, late, session.round, device_id=member.device_id)
        for member in silent
    ]
    return [*gone, Event(task_id, now, EventKind.SUM_COMMITTEE_SELECTED, message, session.round)]


def _left_out(task_id: str, session: SumSession, unwilling: Sequence[str], now: float) -> list[Event]:
    return [
        Event(task_id, now, EventKind.WORK_DECLINED, UNWILLING, session.round, device_id=device) for device in unwilling
    ]


def _unwilling(count: int, least: int, unwilling: Sequence[str]) -> str:
    return (
        f"no clerks are known to enough devices: {', '.join(unwilling)[:200]} would decline the best there are, and of "
        f"{least} devices needed {count} are left; let owners verify each other (coterie circle verify)"
    )
