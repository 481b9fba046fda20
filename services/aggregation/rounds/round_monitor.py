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
"""How often the registry is asked whether those through whom others deliver still live."""


@dataclass(frozen=True, slots=True)
class MonitorResult:
    """What became of a round: after how many seconds to look again, whether it was opened again, why it failed."""

    pause: float = 0.0
    reopened: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class RoundMonitor:
    """Looks after the open rounds of this replica."""

    opener: Opener
    sum_coordinator: Coordinator
    leases: Leases
    clock: Clock

    async def tend(self, live: OpenRound, round_: Round) -> MonitorResult:
        """Moves an open round on as far as it can be."""
        if live.is_secure:
            return await self._preside(live, round_)
        task, now = live.task, self.clock.now()
        lost, look_again = await self._lost(live, now)
        if lost and await self.opener.open(task, round_.number, round_.attempt + 1, lost):
            return MonitorResult(reopened=True)
        standing = Standing(
            live.delivered,
            live.pending,
            live.strategy.progress.quorum(round_.quorum, list(live.roster.states.values())),
            round_.deadline_at,
            round_.attempt,
            task.specification.max_attempts,
            live.unbearable,
            live.is_full,
        )
        verdict = judge(standing, now)
        if verdict is Verdict.WAIT:
            return MonitorResult(max(0.01, min(round_.deadline_at, look_again) - now))
        if verdict is Verdict.CLOSE:
            await self.leases.begin(round_)
            return MonitorResult()
        if verdict is Verdict.REOPEN and await self.opener.open(task, round_.number, round_.attempt + 1):
            return MonitorResult(reopened=True)
        have = f"{standing.delivered} of {standing.quorum} updates needed came"
        have += missing_of(live.roster.states.values())
        have += f"; {standing.unbearable}" if standing.unbearable and standing.delivered else ""
        return MonitorResult(
            failure=f"round {round_.number} missed its quorum in {round_.attempt} attempts: {have}",
        )

    async def _preside(self, live: OpenRound, round_: Round) -> MonitorResult:
        """Moves the secure sums of an open round on; closes it when all are told, or too few are."""
        now = self.clock.now()
        pause = await self.sum_coordinator.step(live)
        if pause == 0.0:
            return MonitorResult()  # something moved, and the round may have work of another attempt
        if any(session.state not in FINAL for session in live.sum_sessions.values()):
            return MonitorResult(pause)
        alone = [live.roster.states[device] for device in live.roster.states if live.is_clear(device)]
        told = [session for session in live.sum_sessions.values() if session.state is SumState.CLOSING]
        count = sum(len(session.surviving) for session in told) + alone.count(ParticipationState.DELIVERED)
        pending = alone.count(ParticipationState.ASSIGNED)
        if pending and now < round_.deadline_at and count + pending >= round_.quorum:
            return MonitorResult(max(0.01, round_.deadline_at - now))
        unbearable = "" if live.choice.is_mean or not told else live.choice.rule.why_not(len(told))
        if count and count >= round_.quorum and not unbearable:
            await self.leases.begin(round_)
            return MonitorResult()
        reasons = "; ".join(session.reason for session in live.sum_sessions.values() if session.reason)
        have = f"{count} of {round_.quorum} devices needed are in its sums"
        why = "; ".join(item for item in (have, reasons, unbearable) if item)
        return MonitorResult(failure=f"round {round_.number} failed: {why}")

    async def _lost(self, live: OpenRound, now: float) -> tuple[dict[str, list[str]], float]:
        """Devices that will not deliver with those they leave behind, and when to look again.

        One through whom others deliver is lost when it declines, when most of the round's time is over, or when the
        registry has revoked it or has not heard of it for a while.
        """
        round_, roster = live.round, live.roster
        if not roster.relayed_by or round_.attempt >= live.task.specification.max_attempts:
            return {}, round_.deadline_at
        patience = round_.opened_at + live.strategy.progress.relay_timeout_share * (
            round_.deadline_at - round_.opened_at
        )
        assigned = ParticipationState.ASSIGNED
        waiting = [device for device in set(roster.relayed_by.values()) if roster.states.get(device) is assigned]
        unreachable = await self.opener.unreachable(waiting) if waiting else set()
        lost = live.strategy.progress.lost_relays(roster, overdue=now >= patience, unreachable=unreachable)
        return lost, min(patience, now + LIFE_CHECK_SECONDS) if waiting and now < patience else round_.deadline_at
