"""Selection of a secure sum's clerks: topology chooses them by trust, among willing devices that participants accept.

A device names the clerks it accepts when it enrols, or by declining clerks that its owner does not know. It would
decline a sum with other clerks, so that sum leaves it out before any device has seen terms.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from coterie.records.enums import ClerkState, SumState
from coterie.secure_sums.terms import Participants
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.records import Round, Task
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.sum_sessions import CommitteeMember, SumSession
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store import sum_sessions, tasks
from services.aggregation.strategies import strategy_for
from services.kit.database.engine import Database
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import Clock

SILENT_SECONDS = 60.0
"""Seconds (four missed heartbeats) after which a device becomes a clerk only if no other can."""
_TIE = 1e-9
_MOST_ASKED = 10_000
Wishes = Mapping[str, frozenset[str]]
"""The accepted clerks of each participant that names some."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The result of a selection.

    Attributes:
        committee: without members if there are too few owners.
        unwilling: participants that would decline it.
        barred: devices excluded because they were silent or outvoted.
        refusing: devices whose owners exclude them.
    """

    committee: topology.Committee
    unwilling: list[str]
    barred: frozenset[str]
    refusing: frozenset[str]

    def too_few(self, rules: SumRules) -> str:
        """Explain why there is no committee, and the remedy."""
        out = f", {len(self.barred)} devices were silent or outvoted" if self.barred else ""
        out += f", owners of {len(self.refusing)} devices do not let them serve" if self.refusing else ""
        return (
            f"too_few_clerks: {rules.clerks} clerks of different owners are needed, the devices that could be have "
            f"{self.committee.owners} owners{out}; enrol devices of more owners, or ask for fewer clerks"
        )


@dataclass(frozen=True, slots=True)
class CommitteeSelection:
    """Chooses committees."""

    database: Database
    clients: ServiceClients
    clock: Clock

    async def choose(
        self, live: OpenRound, session: SumSession, rules: SumRules, silent: Sequence[CommitteeMember]
    ) -> Selection:
        """Choose the best committee; among equally trusted ones, one that no participant would decline.

        Unreachable devices are candidates only if there is no committee without them.
        """
        barred = await self._barred(live.task, session) | {member.device_id for member in silent}
        wishes, refusing = await self._wishes(live, session)
        candidates = [device for device in live.clerks_for(session) if device not in barred | refusing]
        away = await self._unreachable(candidates)
        people = list(session.people.keys)
        for asked in ([device for device in candidates if device not in away], candidates):
            committee = await self._ask(people, asked, rules, wishes)
            if committee.members:
                break
        if _displeased(committee, wishes):
            taken = [device for device in asked if all(device in accepted for accepted in wishes.values())]
            other = await self._ask(people, taken, rules, wishes)
            if other.members and other.least_trust >= committee.least_trust - _TIE:
                committee = other
        return Selection(committee, _displeased(committee, wishes), frozenset(barred), frozenset(refusing))

    async def devices(self, device_ids: Sequence[str]) -> list[trust.Device]:
        """Load these devices from the registry."""
        result: list[trust.Device] = []
        for start in range(0, len(device_ids), _MOST_ASKED):
            request = trust.GetDevicesRequest(device_ids=device_ids[start : start + _MOST_ASKED])
            result.extend((await self.clients.registry.GetDevices(request)).devices)
        return result

    async def _ask(
        self, people: Sequence[str], candidates: Sequence[str], rules: SumRules, wishes: Wishes
    ) -> topology.Committee:
        return await self.clients.topology.ChooseClerks(
            topology.ChooseClerksRequest(
                participants=people,
                candidates=candidates,
                clerks=rules.clerks,
                threshold=rules.threshold,
                acceptances=[
                    topology.Acceptance(device_id=device, clerks=sorted(taken)) for device, taken in wishes.items()
                ],
            ),
            timeout=120.0,
        )

    async def _wishes(self, live: OpenRound, session: SumSession) -> tuple[Wishes, set[str]]:
        """Return the clerks that participants accept, and the devices whose owners exclude them.

        A device that declined unknown clerks accepts all others until it joins again.
        """
        async with self.database.reading() as tx:
            enrolled = await tasks.list_enrolments(tx, live.task.id)
            strangers = await tasks.list_strangers(tx, live.task.id)
        all_devices, wishes = frozenset(live.roster.states), {}
        for enrolment in enrolled:
            device = enrolment.device_id
            if device in session.people.keys and (enrolment.clerks or device in strangers):
                named = frozenset(enrolment.clerks) if enrolment.clerks else all_devices
                wishes[device] = named - frozenset(strangers.get(device, ()))
        return wishes, {enrolment.device_id for enrolment in enrolled if enrolment.no_clerk}

    async def _barred(self, task: Task, session: SumSession) -> set[str]:
        """Return excluded devices: silent in this round, outvoted in this task, or released by this session."""
        async with self.database.reading() as tx:
            liars = await sum_sessions.clerks_in_state(tx, task.id, ClerkState.OUTVOTED)
            members = await sum_sessions.list_round_members(tx, task.id, session.round)
        here = (session.cohort, session.session_number)
        out = {member.device_id for member in members if member.state is ClerkState.SILENT}
        gone = ClerkState.RELEASED
        return liars | out | {s.device_id for s in members if s.state is gone and (s.cohort, s.session_number) == here}

    async def _unreachable(self, device_ids: Sequence[str]) -> set[str]:
        oldest = self.clock.now() - SILENT_SECONDS
        return {device.id for device in await self.devices(device_ids) if 0 < device.last_seen_at < oldest}


def first_sessions(
    task: Task, round_: Round, plan: topology.Plan, devices: Mapping[str, trust.Device], counted: Mapping[str, float]
) -> list[SumSession]:
    """Make the sessions of an opening round, one per cohort; none for sums in the clear."""
    spec = task.specification
    rules, strategy = SumRules.of(spec.parameters), strategy_for(spec)
    if not rules.secure:
        return []
    noise = strategy.secure_sums.noise(plan)
    return [
        SumSession(
            task_id=task.id,
            round=round_.number,
            cohort=cohort,
            session_number=1,
            state=SumState.SELECTING,
            attempt=1,
            since=round_.opened_at,
            deadline_at=round_.opened_at + rules.offer_seconds + spec.round_seconds * max(spec.max_attempts, 1),
            clip_norm=strategy.terms.sum_norm(round_),
            noise_multiplier=noise,
            heaviest=strategy.secure_sums.largest_weight(plan, counted, noised=noise > 0.0),
            participants=Participants.of({device: devices[device].signing_key for device in members}).text,
        )
        for cohort, members in strategy.secure_sums.group_devices(plan, devices, round_.number).items()
    ]


def _displeased(committee: topology.Committee, wishes: Wishes) -> list[str]:
    """Return participants that do not accept the whole committee."""
    chosen: Collection[str] = {member.device_id for member in committee.members}
    return [device for device, taken in wishes.items() if not taken.issuperset(chosen)]
