"""Watch an open round: it goes on, closes, reopens for the members of a lost head, or fails."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records.enums import ParticipationState, SumState
from services.aggregation.domain.records import Round
from services.aggregation.domain.rounds import Standing, Verdict, judge, missing_of
from services.aggregation.rounds.leases import Leases
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.rounds.opening import Opener
from services.aggregation.secure_sums.coordinator import FINAL, Coordinator
from services.kit.runtime.clock import Clock

LIFE_CHECK_SECONDS = 5.0
"""Interval at which the monitor asks the registry whether cluster heads are alive."""


@dataclass(frozen=True, slots=True)
class MonitorResult:
    """Result of one look at a round: seconds until the next, whether it opened again, why it failed."""

    pause: float = 0.0
    reopened: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class RoundMonitor:
    """Watch the open rounds of this replica."""

    opener: Opener
    sum_coordinator: Coordinator
    leases: Leases
    clock: Clock

    async def step(self, open_round: OpenRound, round_: Round) -> MonitorResult:
        """Advance an open round as far as its deliveries allow."""
        if open_round.is_secure:
            return await self._step_sums(open_round, round_)
        task, now = open_round.task, self.clock.now()
        lost, look_again = await self._lost(open_round, now)
        if lost and await self.opener.open(task, round_.number, round_.attempt + 1, lost):
            return MonitorResult(reopened=True)
        standing = Standing(
            open_round.delivered,
            open_round.pending,
            open_round.strategy.progress.quorum(round_.quorum, list(open_round.roster.states.values())),
            round_.deadline_at,
            round_.attempt,
            task.specification.max_attempts,
            open_round.unbearable,
            open_round.is_full,
        )
        verdict = judge(standing, now)
        if verdict is Verdict.WAIT:
            return MonitorResult(max(0.01, min(round_.deadline_at, look_again) - now))
        if verdict is Verdict.CLOSE:
            await self.leases.begin(round_)
            return MonitorResult()
        if verdict is Verdict.REOPEN and await self.opener.open(task, round_.number, round_.attempt + 1):
            return MonitorResult(reopened=True)
        have = f"{standing.delivered} of {standing.quorum} required updates arrived"
        have += missing_of(open_round.roster.states.values())
        have += f"; {standing.unbearable}" if standing.unbearable and standing.delivered else ""
        return MonitorResult(
            failure=f"round {round_.number} missed its quorum in {round_.attempt} attempts: {have}",
        )

    async def _step_sums(self, open_round: OpenRound, round_: Round) -> MonitorResult:
        """Advance the secure sums of an open round; close it when all have ended, or too few can."""
        now = self.clock.now()
        pause = await self.sum_coordinator.step(open_round)
        if pause == 0.0:
            return MonitorResult()  # something moved, and the round may have work of another attempt
        if any(session.state not in FINAL for session in open_round.sum_sessions.values()):
            return MonitorResult(pause)
        alone = [open_round.roster.states[device] for device in open_round.roster.states if open_round.is_clear(device)]
        unmasked = [session for session in open_round.sum_sessions.values() if session.state is SumState.CLOSING]
        count = sum(len(session.surviving) for session in unmasked) + alone.count(ParticipationState.DELIVERED)
        pending = alone.count(ParticipationState.ASSIGNED)
        if pending and now < round_.deadline_at and count + pending >= round_.quorum:
            return MonitorResult(max(0.01, round_.deadline_at - now))
        unbearable = "" if open_round.choice.is_mean or not unmasked else open_round.choice.rule.why_not(len(unmasked))
        if count and count >= round_.quorum and not unbearable:
            await self.leases.begin(round_)
            return MonitorResult()
        reasons = "; ".join(session.reason for session in open_round.sum_sessions.values() if session.reason)
        have = f"{count} of {round_.quorum} required devices are in its sums"
        why = "; ".join(item for item in (have, reasons, unbearable) if item)
        return MonitorResult(failure=f"round {round_.number} failed: {why}")

    async def _lost(self, open_round: OpenRound, now: float) -> tuple[dict[str, list[str]], float]:
        """Return lost relays with the devices they leave behind, and when to look again.

        A relay (a device through which others deliver) is lost when it declines, when most of the round's time is
        over, or when the registry has revoked it or received no heartbeat for `SILENT_SECONDS`.
        """
        round_, roster = open_round.round, open_round.roster
        if not roster.relayed_by or round_.attempt >= open_round.task.specification.max_attempts:
            return {}, round_.deadline_at
        patience = round_.opened_at + open_round.strategy.progress.relay_timeout_share * (
            round_.deadline_at - round_.opened_at
        )
        assigned = ParticipationState.ASSIGNED
        waiting = [device for device in set(roster.relayed_by.values()) if roster.states.get(device) is assigned]
        unreachable = await self.opener.unreachable(waiting) if waiting else set()
        lost = open_round.strategy.progress.lost_relays(roster, overdue=now >= patience, unreachable=unreachable)
        return lost, min(patience, now + LIFE_CHECK_SECONDS) if waiting and now < patience else round_.deadline_at
