"""What follows a sitting that cannot go on: more time, a new committee with new terms, or the end of the sum.

Nothing that was opened is opened again. Without noise a device gives one update for a model and no more, since two sums
over different sets could be subtracted; so where too few are left who gave none, the sum is given up at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from coterie.records.enums import ClerkState, EventKind, ParticipationState, Role, RoundState, SumState
from coterie.secure_sums.terms import Participants
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.records import Event
from services.aggregation.domain.secure import rejected_devices
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.sittings import Seat, Sitting
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store import rounds, sittings, tasks
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Resitting:
    """Ends sittings."""

    database: Database
    clients: ServiceClients
    clock: Clock

    async def extend(self, live: OpenRound, sitting: Sitting, reason: str) -> None:
        """Gives devices of an open sitting as much time again; deliveries stay, nothing was opened."""
        spec, now = live.task.specification, self.clock.now()
        if sitting.attempt >= spec.max_attempts:
            await self.give_up(live, sitting, f"{reason} after {sitting.attempt} attempts")
            return
        deadline = now + spec.round_seconds
        async with self.database.writing() as tx:
            if not await _is_still(tx, sitting):
                return
            again = {"attempt": sitting.attempt + 1, "since": now, "deadline_at": deadline}
            await sittings.change_sitting(tx, sitting.place, expected=SumState.OPEN, **again)
            await rounds.extend_deadline(tx, live.task.id, sitting.round, deadline)
            await tasks.change_task(tx, live.task.id)
            message = f"sum {sitting.cohort}: {reason}; the sitting goes on, what came stays"
            await tasks.add_events(tx, Event(live.task.id, now, EventKind.ROUND_REOPENED, message, sitting.round))

    async def fail(self, live: OpenRound, sitting: Sitting, reason: str, silent: Sequence[Seat] = ()) -> None:
        """Ends a sitting; a new one follows while attempts are left and enough devices can take part in it."""
        spec = live.task.specification
        if sitting.attempt >= spec.max_attempts:
            await self.give_up(live, sitting, f"{reason}, after {sitting.attempt} attempts", silent)
            return
        async with self.database.reading() as tx:
            seats = await sittings.list_seats(tx, sitting.place)
            sent = await sittings.ever_masked(tx, live.task.id, sitting.round)
            strangers = await tasks.list_strangers(tx, live.task.id)
        cheats = cheating(sitting, seats)
        # Who declined the clerks may take others; who declined for another reason would decline again.
        declined = {d for d in sitting.people.keys if live.roster.states.get(d) is ParticipationState.DECLINED}
        people = await self._people(sitting, cheats | (declined - strangers.keys()))
        terms = sitting.read_terms
        able = len(people.keys) if sitting.noise_multiplier else len(people.keys.keys() - sent)
        if able < terms.least:
            why = "" if sitting.noise_multiplier else ": without noise a device gives one update for a model"
            await self.give_up(live, sitting, f"{reason}; {able} devices could take part in a new sitting{why}", silent)
            return
        await self._again(live, sitting, people, cheats, reason, silent)

    async def _again(
        self,
        live: OpenRound,
        sitting: Sitting,
        people: Participants,
        cheats: Collection[str],
        reason: str,
        silent: Sequence[Seat],
    ) -> None:
        spec, now = live.task.specification, self.clock.now()
        rules = SumRules.of(spec.parameters)
        left = max(spec.max_attempts - sitting.attempt, 1)
        fresh = Sitting(
            task_id=sitting.task_id,
            round=sitting.round,
            cohort=sitting.cohort,
            sitting=sitting.sitting + 1,
            state=SumState.CALLING,
            attempt=sitting.attempt + 1,
            since=now,
            deadline_at=now + rules.offer_seconds + spec.round_seconds * left,
            clip_norm=sitting.clip_norm,
            noise_multiplier=sitting.noise_multiplier,
            heaviest=sitting.heaviest,
            participants=people.text,
        )
        async with self.database.writing() as tx:
            if not await self._end(tx, sitting, reason, silent):
                return
            await sittings.add_sittings(tx, [fresh])
            await self._reject(tx, live, sitting, cheats)
            await rounds.assign_again(tx, sitting.task_id, sitting.round, list(people.keys))
            # A round in closing goes back: another sum of it is counted anew.
            await rounds.change_round(
                tx, sitting.task_id, sitting.round, expected=RoundState.CLOSING, state=RoundState.OPEN
            )
            message = f"sum {sitting.cohort}, sitting {sitting.sitting}: {reason}; a new sitting is called"
            await tasks.add_events(tx, Event(live.task.id, now, EventKind.SUM_FAILED, message, sitting.round))
            await tasks.change_task(tx, live.task.id)
        for device in people.keys:
            if live.roster.states.get(device) is not ParticipationState.REJECTED:
                live.roster.states[device] = ParticipationState.ASSIGNED

    async def give_up(self, live: OpenRound, sitting: Sitting, reason: str, silent: Sequence[Seat] = ()) -> None:
        """Ends a sitting that nothing follows."""
        now = self.clock.now()
        async with self.database.writing() as tx:
            if not await self._end(tx, sitting, reason, silent):
                return
            alone = await self._work_alone(tx, live, sitting)
            what = f"{len(alone)} devices work alone instead" if alone else "it is left out"
            message = f"sum {sitting.cohort}, sitting {sitting.sitting}: {reason}; {what}"
            await tasks.add_events(tx, Event(live.task.id, now, EventKind.SUM_FAILED, message, sitting.round))
            await tasks.change_task(tx, live.task.id)

    async def _work_alone(self, tx: Tx, live: OpenRound, sitting: Sitting) -> list[str]:
        """Gives the devices of a sum that failed for good the work that takes its place, if there is any."""
        round_ = await rounds.find_round(tx, sitting.task_id, sitting.round)
        assert round_ is not None
        items = live.strategy.secure_sums.fallback_work(live.roster, sitting.people.keys, round_.attempt + 1)
        found = await rounds.list_participations(tx, sitting.task_id, sitting.round)
        again = [
            replace(p, role=Role.SOLO, state=ParticipationState.ASSIGNED, work=items[p.device_id].SerializeToString())
            for p in found
            if p.device_id in items and p.state is not ParticipationState.REJECTED
        ]
        if again:
            deadline = self.clock.now() + live.task.specification.round_seconds
            await rounds.add_participations(tx, again)
            # Another attempt, so that every replica reads the new work; sums that go on are not touched by it.
            for state in (RoundState.OPEN, RoundState.CLOSING):
                await rounds.change_round(
                    tx,
                    sitting.task_id,
                    sitting.round,
                    expected=state,
                    state=RoundState.OPEN,
                    attempt=round_.attempt + 1,
                    deadline_at=max(deadline, round_.deadline_at),
                )
        return [p.device_id for p in again]

    async def _end(self, tx: Tx, sitting: Sitting, reason: str, silent: Sequence[Seat]) -> bool:
        if not await _is_still(tx, sitting):
            return False
        for seat in silent:
            await sittings.change_seat(tx, sitting.place, seat.device_id, state=ClerkState.SILENT)
        ended = {"state": SumState.FAILED, "reason": reason}
        return await sittings.change_sitting(tx, sitting.place, expected=sitting.state, **ended)

    async def _reject(self, tx: Tx, live: OpenRound, sitting: Sitting, cheats: Collection[str]) -> None:
        if not cheats:
            return
        found = await rounds.list_participations(tx, sitting.task_id, sitting.round)
        note = "enough clerks found its masked update wrong"
        rejected = [replace(p, state=ParticipationState.REJECTED, note=note) for p in found if p.device_id in cheats]
        await rounds.rule(tx, rejected)
        for device in cheats:
            live.roster.states[device] = ParticipationState.REJECTED

    async def _people(self, sitting: Sitting, cheats: Collection[str]) -> Participants:
        """Who takes part in a new sitting: those who are still active, with the keys they have now."""
        wanted = [device for device in sitting.people.keys if device not in cheats]
        keys: dict[str, bytes] = {}
        for start in range(0, len(wanted), 10_000):
            request = trust.GetDevicesRequest(device_ids=wanted[start : start + 10_000])
            for device in (await self.clients.registry.GetDevices(request)).devices:
                if device.state == words.DEVICE_STATE_ACTIVE:
                    keys[device.id] = device.signing_key
        return Participants.of(keys)


def cheating(sitting: Sitting, seats: Sequence[Seat]) -> frozenset[str]:
    """Devices that so many clerks fault that one of these is honest."""
    faults = {seat.position: seat.faults for seat in seats if seat.position >= 0}
    return rejected_devices(faults, sitting.read_terms.threshold) if sitting.terms else frozenset()


async def _is_still(tx: Tx, sitting: Sitting) -> bool:
    """Locks round and sitting; whether the sitting is in the state it was."""
    await rounds.find_round(tx, sitting.task_id, sitting.round, lock=True)
    fresh = await sittings.find_sitting(tx, sitting.place, lock=True)
    return fresh is not None and (fresh.state, fresh.attempt) == (sitting.state, sitting.attempt)
