"""The next step of a secure sum as a pure function of its session, its committee, the time and a few facts.

No I/O, no clock: the same arguments give the same step on every replica. The coordinator carries steps out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coterie.records.enums import ClerkState, SumState
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
    count_commits,
    is_answered,
    missing_shares,
    votes_of,
)

Members = tuple[CommitteeMember, ...]
IDLE_SECONDS = 5.0
"""Longest wait: another replica may have changed the session meanwhile."""
SHORTEST_WAIT = 0.01
QUARTER = 0.25
"""Part of the clerks' time after which a ready check closes without late clerks, and a late share is given up."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a step depends on beside the session and its committee.

    Attributes:
        began_at: start of this process; clerks and devices could not answer before it.
        offer_seconds: time for a key offer.
        clerk_seconds: time for everything clerks do after the deliveries.
        unchecked: whether a share counts that a majority reports and fewer than t clerks prove.
        delivered, pending, declined: devices of the sum by what they did.
        shares: share sums requested so far, by number.
    """

    began_at: float
    offer_seconds: float
    clerk_seconds: float
    unchecked: bool = True
    delivered: int = 0
    pending: int = 0
    declined: int = 0
    shares: Mapping[int, Share] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due before this many seconds, unless a device or clerk acts."""

    seconds: float = IDLE_SECONDS


@dataclass(frozen=True, slots=True)
class SelectCommittee:
    """Choose a committee, or replace its silent members. serving: present members, the silent among them."""

    serving: Members
    silent: Members


@dataclass(frozen=True, slots=True)
class OpenForDeliveries:
    """All members have offered keys: write the terms and let devices deliver."""

    serving: Members


@dataclass(frozen=True, slots=True)
class ExtendDeliveries:
    """Too few devices delivered: give the others as much time again."""

    reason: str


@dataclass(frozen=True, slots=True)
class BeginReadyCheck:
    """Show the committee who delivered."""


@dataclass(frozen=True, slots=True)
class RepeatReadyCheck:
    """Show these clerks the candidates that all of them can serve."""

    check: CheckAgain


@dataclass(frozen=True, slots=True)
class FixSurvivors:
    """Store the survivors, so that clerks may commit to them."""

    settled: Settled


@dataclass(frozen=True, slots=True)
class Unmask:
    """The share sums are there: the session waits for the round to remove the masks."""

    votes: Votes
    silent: Members


@dataclass(frozen=True, slots=True)
class Fail:
    """The session cannot continue. votes: the count of the shares, where members have reported any."""

    reason: str
    silent: Members = ()
    votes: Votes | None = None


Step = (
    Wait
    | SelectCommittee
    | OpenForDeliveries
    | ExtendDeliveries
    | BeginReadyCheck
    | RepeatReadyCheck
    | FixSurvivors
    | Unmask
    | Fail
)


def next_step(session: SumSession, members: Sequence[CommitteeMember], now: float, facts: Facts) -> Step:
    """The step that is due; `Wait` when none is. members: the committee of this very session."""
    if session.state is SumState.SELECTING:
        return _select(members, now, facts)
    if session.state is SumState.OPEN:
        return _deliver(session, now, facts)
    if session.state is not SumState.COUNTING:
        return Wait()
    named = tuple(member for member in members if member.position >= 0)
    count = _Count(session, named, now, facts)
    if not session.survivors:
        return count.check_ready()
    if count_commits(named) < session.read_terms.quorum:
        return count.await_commits()
    return count.await_shares()


def _select(members: Sequence[CommitteeMember], now: float, facts: Facts) -> Step:
    serving = tuple(member for member in members if member.state is ClerkState.SERVING)
    missing = [member for member in serving if not member.session_key]
    ends = {member.device_id: max(member.selected_at, facts.began_at) + facts.offer_seconds for member in missing}
    silent = tuple(member for member in missing if now >= ends[member.device_id])
    if silent or not serving:
        return SelectCommittee(serving, silent)
    if not missing:
        return OpenForDeliveries(serving)
    return _until(min(ends.values()), now)


def _deliver(session: SumSession, now: float, facts: Facts) -> Step:
    terms = session.read_terms
    if facts.delivered + facts.pending < terms.least:
        return Fail(f"{facts.declined} of {terms.count} devices declined, and {terms.least} are needed")
    if facts.pending and now < session.deadline_at:
        return _until(session.deadline_at, now)
    if facts.delivered >= terms.least:
        return BeginReadyCheck()
    return ExtendDeliveries(f"{facts.delivered} of {terms.least} updates needed came")


@dataclass(frozen=True, slots=True)
class _Count:
    """A session whose committee counts: ready checks, commits, share sums."""

    session: SumSession
    members: Members
    now: float
    facts: Facts

    @property
    def _since(self) -> float:
        return max(self.session.since, self.facts.began_at)

    @property
    def _deadline(self) -> float:
        return max(self.session.deadline_at, self.facts.began_at + self.facts.clerk_seconds)

    @property
    def _quarter(self) -> float:
        return self.facts.clerk_seconds * QUARTER

    def check_ready(self) -> Step:
        session, terms = self.session, self.session.read_terms
        ready = [member for member in self.members if member.checked_list == session.candidates_digest]
        is_quarter_over = self.now - self._since >= self._quarter
        verdict = judge_ready_checks(
            {member.position: member.ready for member in ready},
            session.asked,
            [candidate.device for candidate in session.listed],
            least=terms.least,
            quorum=terms.quorum,
            patience_over=is_quarter_over,
        )
        if isinstance(verdict, CheckAgain):
            return RepeatReadyCheck(verdict)
        if isinstance(verdict, Settled):
            return FixSurvivors(verdict)
        if isinstance(verdict, TooFewSurvivors):
            return Fail(f"the clerks can serve {len(verdict.common)} devices together, {terms.least} are needed")
        if self.now >= self._deadline:
            missing = tuple(m for m in self.members if m not in ready and m.position in session.asked)
            return Fail(f"{len(ready)} clerks reported whom they can serve, {terms.quorum} must", missing)
        return _until(self._deadline if is_quarter_over else self._since + self._quarter, self.now)

    def await_commits(self) -> Step:
        if self.now < self._deadline:
            return _until(self._deadline, self.now)
        silent = tuple(member for member in self.members if not member.commit_signature)
        quorum = self.session.read_terms.quorum
        return Fail(f"{count_commits(self.members)} clerks committed to the survivors, {quorum} must", silent)

    def await_shares(self) -> Step:
        terms = self.session.read_terms
        votes = votes_of(terms, self.members)
        if not is_answered(votes, self.members) and self.now < self._deadline:
            return _until(self._deadline, self.now)
        if votes.believed(unchecked=self.facts.unchecked) is None:
            return Fail("the clerks report different share sums", self._silent(), votes)
        if missing_shares(terms, self.members, self.facts.shares):
            # A share that was requested late has the same time to arrive as one that was requested early.
            requested = (share.asked_at + self._quarter for share in self.facts.shares.values())
            until = max([self._deadline, *requested])
            if self.now < until:
                return Wait(max(SHORTEST_WAIT, min(until - self.now, self._quarter)))
            return Fail("some share sums did not come", self._silent(), votes)
        return Unmask(votes, self._silent())

    def _silent(self) -> Members:
        """Members without an answer whose time is over: a clerk slower than enough others is not silent, nor is one
        that answered the ready check and cannot serve the survivors."""
        surviving = [device for device, _ in self.session.surviving]
        began = self._deadline - self.facts.clerk_seconds
        is_over, is_quarter_over = self.now >= self._deadline, self.now - began >= self._quarter
        return tuple(
            member
            for member in self.members
            if not member.answer
            and (is_over if member.checked_list else is_quarter_over)
            and (not member.checked_list or may_join(member.ready, surviving))
        )


def _until(end: float, now: float) -> Wait:
    return Wait(max(SHORTEST_WAIT, end - now))
