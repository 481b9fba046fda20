"""The chair moves every secure sum of an open round from state to state, one repeatable step at a time.

    calling ─ all clerks offered ─► open ─ enough delivered ─► counting ─ shares told ─► closing
       │ silent: replaced             │ quorum missed: extended    │
       └──────────────────────────────┴──────── cannot go on ──────┴─► failed, and a new sitting, or the sum is given up

Each step ends in one transaction that locks the round and the sitting and checks the state it started from.
"""

from __future__ import annotations

import asyncio
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
from services.aggregation.domain.sittings import Seat, Sitting
from services.aggregation.errors import NoGrid
from services.aggregation.rounds.calling import Calling
from services.aggregation.rounds.counting import Counting
from services.aggregation.rounds.desk import Desk
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.rounds.resitting import Resitting
from services.aggregation.store import rounds, sittings, tasks
from services.aggregation.store.model_files import ModelFiles
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.notify.notifier import Notifier
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import SharedClock

LOOK_AGAIN_SECONDS = 5.0
FINAL = (SumState.CLOSING, SumState.FAILED)
"""States of present sittings that wait for nobody: failed ones are given up, since a new sitting would follow."""


@dataclass(frozen=True, slots=True)
class Chair:
    """Conducts sittings."""

    database: Database
    clients: ServiceClients
    model_files: ModelFiles
    desk: Desk
    notifier: Notifier
    clock: SharedClock
    """Nobody is silent before this process began, while there was no platform to speak to."""

    async def step(self, live: OpenRound) -> float:
        """Makes the next step of every sum; seconds until one may be due, 0 when something has moved."""
        seats = await self._look(live)
        pauses = [LOOK_AGAIN_SECONDS]
        for sitting in list(live.sittings.values()):
            pauses.append(await self._step(live, sitting, [seat for seat in seats if seat.place == sitting.place]))
        return min(pauses)

    async def _look(self, live: OpenRound) -> list[Seat]:
        """Reads where the sums stand, and wakes devices whose sum has just opened, and clerks; the round's seats."""
        async with self.database.reading() as tx:
            present = await sittings.latest_sittings(tx, live.task.id, live.round.number)
            seats = await sittings.list_round_seats(tx, live.task.id, live.round.number)
        known = {cohort: (sitting.sitting, sitting.state) for cohort, sitting in live.sittings.items()}
        live.seat(present)
        for cohort, sitting in present.items():
            moved = known.get(cohort) != (sitting.sitting, sitting.state)
            if moved and sitting.state is SumState.OPEN:
                self.notifier.notify(*(f"device:{device}" for device in sitting.people.keys))
            if moved and sitting.state is SumState.COUNTING:
                # Who made it count has woken the clerks that wait there; others wait here.
                self.desk.call(clerk.device for clerk in sitting.read_terms.clerks)
        untold = {seat.device_id for seat in seats if not seat.told}
        if untold - self.desk.devices:
            self.desk.call(untold)
        return seats

    def release(self, live: OpenRound) -> None:
        """Wakes the clerks of a round that is over: there is something to forget."""
        told = (sitting.read_terms for sitting in live.sittings.values() if sitting.terms)
        self.desk.call(clerk.device for terms in told for clerk in terms.clerks)

    async def _step(self, live: OpenRound, sitting: Sitting, seats: Sequence[Seat]) -> float:
        if sitting.state is SumState.CALLING:
            return await self._call(live, sitting, seats)
        if sitting.state is SumState.OPEN:
            return await self._watch(live, sitting)
        if sitting.state is SumState.COUNTING:
            counting = Counting(self.database, self.desk, self.clock, self.resitting)
            return await counting.step(live, sitting, seats)
        return LOOK_AGAIN_SECONDS

    @property
    def resitting(self) -> Resitting:
        """What follows a sitting that failed."""
        return Resitting(self.database, self.clients, self.clock)

    @property
    def calling(self) -> Calling:
        """Chooses clerks."""
        return Calling(self.database, self.clients, self.clock)

    # --- calling ------------------------------------------------------------------------------------------------------

    async def _call(self, live: OpenRound, sitting: Sitting, seats: Sequence[Seat]) -> float:
        """Has a committee, replaces its silent members, and opens the sum when all have offered themselves."""
        rules, now = live.strategy.secure_sums.committee(len(sitting.people.keys)), self.clock.now()
        serving = [seat for seat in seats if seat.state is ClerkState.SERVING]
        late = [seat for seat in serving if not seat.session_key]
        silent = [seat for seat in late if now - max(seat.called_at, self.clock.began_at) >= rules.offer_seconds]
        if silent or not serving:
            return await self._choose(live, sitting, rules, serving, silent)
        if all(seat.session_key for seat in serving):
            await self._open(live, sitting, rules, serving)
            return 0.0
        return max(0.01, min(max(seat.called_at, self.clock.began_at) for seat in late) + rules.offer_seconds - now)

    async def _choose(
        self, live: OpenRound, sitting: Sitting, rules: SumRules, serving: Sequence[Seat], silent: Sequence[Seat]
    ) -> float:
        called = await self.calling.choose(live, sitting, rules, silent)
        committee, unwilling = called.committee, called.unwilling
        if not committee.members:
            await self.resitting.give_up(live, sitting, called.too_few(rules), silent)
            return 0.0
        chosen = {member.device_id: member for member in committee.members}
        people = sitting.people.without(unwilling)
        least = max(secure_terms.LEAST, live.round.quorum if live.is_whole else 0)
        if len(people.keys) < least:
            await self.resitting.give_up(live, sitting, _unwilling(len(people.keys), least, unwilling), silent)
            return 0.0
        now = self.clock.now()
        fresh = [
            Seat(
                *(sitting.task_id, sitting.round, sitting.cohort, sitting.sitting),
                member.device_id,
                member.owner_id,
                member.signing_key.hex(),
                ClerkState.SERVING,
                position=-1,
                called_at=now,
            )
            for member in committee.members
        ]
        async with self.database.writing() as tx:
            if not await self._is_still(tx, sitting) or await _serving(tx, sitting) != {s.device_id for s in serving}:
                return 0.0  # another replica has called clerks meanwhile: a sum has one committee
            for seat in silent:
                await sittings.change_seat(tx, sitting.place, seat.device_id, state=ClerkState.SILENT)
            for seat in serving:
                if seat not in silent and seat.device_id not in chosen:
                    await sittings.change_seat(tx, sitting.place, seat.device_id, state=ClerkState.RELEASED)
            await sittings.add_seats(tx, fresh)
            noise = live.strategy.secure_sums.noise_for_trust(sitting.noise_multiplier, committee.least_trust)
            await sittings.change_sitting(
                tx, sitting.place, expected=SumState.CALLING, participants=people.text, noise_multiplier=noise
            )
            for device in unwilling:
                await rounds.decline(tx, live.task.id, sitting.round, device, UNWILLING)
            await tasks.change_task(tx, live.task.id)
            await tasks.add_events(tx, *_called(live.task.id, sitting, committee, silent, now))
            await tasks.add_events(tx, *_left_out(live.task.id, sitting, unwilling, now))
        for device in unwilling:
            live.roster.states[device] = ParticipationState.DECLINED
        self.desk.call([*chosen, *(seat.device_id for seat in serving)])
        self.notifier.notify(f"events:{live.task.id}")
        return 0.0

    # --- open ---------------------------------------------------------------------------------------------------------

    async def _open(self, live: OpenRound, sitting: Sitting, rules: SumRules, serving: Sequence[Seat]) -> None:
        """Writes the terms, once, and lets devices have them."""
        spec, now = live.task.specification, self.clock.now()
        clerks = sorted(serving, key=lambda seat: seat.device_id.encode())
        terms = await asyncio.to_thread(self._terms, live, sitting, rules, clerks)
        deadline = now + spec.round_seconds
        async with self.database.writing() as tx:
            if not await self._is_still(tx, sitting):
                return
            for position, seat in enumerate(clerks):
                await sittings.change_seat(tx, sitting.place, seat.device_id, position=position)
            opened = {"state": SumState.OPEN, "terms": terms.text, "since": now, "deadline_at": deadline}
            await sittings.change_sitting(tx, sitting.place, expected=SumState.CALLING, **opened)
            await rounds.extend_deadline(tx, live.task.id, live.round.number, deadline)
            await tasks.change_task(tx, live.task.id)
            message = (
                f"{_name(sitting)}: {len(clerks)} clerks offered themselves; at least {terms.least} of {terms.count} "
                f"devices must be in the sum, {terms.honest} of them are counted on to be honest"
            )
            await tasks.add_events(tx, Event(live.task.id, now, EventKind.SUM_OPENED, message, sitting.round))
        self.notifier.notify(f"events:{live.task.id}")

    def _terms(self, live: OpenRound, sitting: Sitting, rules: SumRules, clerks: Sequence[Seat]) -> Terms:
        """Runs in a worker thread; `NoGrid` where no grid serves."""
        spec, (digest, size) = live.task.specification, live.bases[0]
        count = len(sitting.people.keys)
        quorum = max(spec.quorum, min(spec.min_devices, count) / count) if live.is_whole else spec.quorum
        honest = rules.honest(secure_terms.least_survivors(quorum, count))
        named = [
            NamedClerk(
                seat.device_id,
                seat.owner_id,
                bytes.fromhex(seat.signing_key),
                bytes.fromhex(seat.session_key),
                bytes.fromhex(seat.offer),
            )
            for seat in clerks
        ]
        try:
            return make_terms(
                sitting.place,
                live.round.plan_version,
                secure_terms.Model(
                    digest, self.model_files.layout(digest, size).elements + live.strategy.secure_sums.extra_elements
                ),
                sitting.people,
                named,
                rules,
                quorum=quorum,
                clip_norm=sitting.clip_norm,
                noise_multiplier=live.strategy.secure_sums.terms_noise(sitting.noise_multiplier, honest),
                heaviest=sitting.heaviest,
                scale=live.strategy.secure_sums.scale,
            )
        except secure_terms.NoGrid as error:
            raise NoGrid(str(error)) from error

    async def _watch(self, live: OpenRound, sitting: Sitting) -> float:
        """Waits for deliveries; then counts, extends the sitting, or gives the clerks up."""
        terms, now = sitting.read_terms, self.clock.now()
        states = [live.roster.states.get(device) for device in sitting.people.keys]
        delivered = states.count(ParticipationState.DELIVERED)
        pending = states.count(ParticipationState.ASSIGNED)
        if delivered + pending < terms.least:
            declined = states.count(ParticipationState.DECLINED)
            reason = f"{declined} of {terms.count} devices declined, and {terms.least} are needed"
            await self.resitting.fail(live, sitting, reason)
            return 0.0
        if pending and now < sitting.deadline_at:
            return max(0.01, sitting.deadline_at - now)
        if delivered >= terms.least:
            await self._begin_counting(live, sitting, terms)
        else:
            await self.resitting.extend(live, sitting, f"{delivered} of {terms.least} updates needed came")
        return 0.0

    async def _begin_counting(self, live: OpenRound, sitting: Sitting, terms: Terms) -> None:
        """Asks the clerks whom of those who delivered, and were not revoked, they can serve."""
        devices = await self.calling.devices(list(sitting.people.keys))
        active = {device.id for device in devices if device.state == words.DEVICE_STATE_ACTIVE}
        spec, now = live.task.specification, self.clock.now()
        patience = SumRules.of(spec.parameters).patience_seconds(spec.round_seconds)
        async with self.database.writing() as tx:
            if not await self._is_still(tx, sitting):
                return
            masked = await sittings.list_masked(tx, sitting.place)
            candidates = [each.candidate for each in masked if each.device_id in active]
            await sittings.change_sitting(
                tx,
                sitting.place,
                expected=SumState.OPEN,
                state=SumState.COUNTING,
                candidates=candidates_text(candidates),
                asked=list(range(len(terms.clerks))),
                since=now,
                deadline_at=now + patience,
            )
            await tasks.change_task(tx, live.task.id)
        self.desk.call(clerk.device for clerk in terms.clerks)

    async def _is_still(self, tx: Tx, sitting: Sitting) -> bool:
        """Locks round and sitting; whether the sitting is as it was."""
        await rounds.find_round(tx, sitting.task_id, sitting.round, lock=True)
        fresh = await sittings.find_sitting(tx, sitting.place, lock=True)
        return fresh is not None and (fresh.state, fresh.candidates) == (sitting.state, sitting.candidates)


UNWILLING = "it does not take these clerks: let it verify them, or enrol more devices that everybody knows"
"""Noted for a device that named other clerks, or declined some of these before."""


async def _serving(tx: Tx, sitting: Sitting) -> set[str]:
    seats = await sittings.list_seats(tx, sitting.place)
    return {seat.device_id for seat in seats if seat.state is ClerkState.SERVING}


def _name(sitting: Sitting) -> str:
    return f"sum {sitting.cohort}, sitting {sitting.sitting}"


def _called(
    task_id: str, sitting: Sitting, committee: topology.Committee, silent: Sequence[Seat], now: float
) -> list[Event]:
    names = ", ".join(member.device_id for member in committee.members)
    message = (
        f"{_name(sitting)}: called as clerks {names}; whoever of the participants trusts them least does so by "
        f"{committee.least_trust:.2f}"
    )
    late = "offered no key in time and is replaced"
    gone = [Event(task_id, now, EventKind.CLERK_SILENT, late, sitting.round, seat.device_id) for seat in silent]
    return [*gone, Event(task_id, now, EventKind.SUM_CALLED, message, sitting.round)]


def _left_out(task_id: str, sitting: Sitting, unwilling: Sequence[str], now: float) -> list[Event]:
    return [Event(task_id, now, EventKind.WORK_DECLINED, UNWILLING, sitting.round, device) for device in unwilling]


def _unwilling(count: int, least: int, unwilling: Sequence[str]) -> str:
    return (
        f"no clerks are known to enough devices: {', '.join(unwilling)[:200]} would decline the best there are, and of "
        f"{least} devices needed {count} are left; let owners verify each other (coterie circle verify)"
    )
