"""Sessions of secure sums as stored, and the next duty of a clerk.

A session is one committee serving one sum of one round. Everything in it is written once: terms before devices see
them, survivors before clerks see them, and a new session is a new row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from coterie.records.enums import ClerkState, DutyKind, SumState
from coterie.secure_sums.letters import FaultKind
from coterie.secure_sums.masks import commit_quorum
from coterie.secure_sums.protocol_lists import Candidate, list_digest, read_candidates, read_survivors
from coterie.secure_sums.terms import Participants, Place, Terms
from services.aggregation.domain.sum_decisions import Votes, count_votes, may_join

OUT_OF_RANGE = "sum_out_of_range"
"""Prefix of the reason of a failed session whose sum cannot come from honest devices."""
ReportedDigests = dict[int, dict[int, bytes]]
"""Digests by clerk's position and share."""

# A session's row is loaded at every step; its texts never change, so each is parsed once.
_read_terms = lru_cache(32)(Terms.read)
_read_people = lru_cache(32)(Participants.read)
_read_candidates = lru_cache(32)(read_candidates)
_read_survivors = lru_cache(32)(read_survivors)


@dataclass(frozen=True)
class SumSession:
    """One session.

    Attributes
    ----------
    attempt : attempts at this cohort's sum in the round, this one included.
    since : when the present state began; in counting, the present ready check or the fixing of the survivors.
    deadline_at : end of the present state's time.
    clip_norm, noise_multiplier, heaviest : inputs of the terms.
    participants, terms, candidates, survivors : canonical texts; empty until there are any.
    asked : positions of the clerks asked in the present ready check.
    digest : D of the survivors.
    opened : blob of the opened sum.
    reason : why the session failed.
    """

    task_id: str
    round: int
    cohort: int
    session_number: int
    state: SumState
    attempt: int
    since: float
    deadline_at: float
    clip_norm: float
    noise_multiplier: float
    heaviest: float
    participants: str
    terms: str = ""
    candidates: str = ""
    asked: tuple[int, ...] = ()
    survivors: str = ""
    digest: str = ""
    opened: str = ""
    reason: str = ""

    @property
    def place(self) -> Place:
        return Place(self.task_id, self.cohort, self.round, self.session_number)

    @property
    def name(self) -> str:
        return f"sum {self.cohort}, session {self.session_number}"

    @cached_property
    def read_terms(self) -> Terms:
        return _read_terms(self.terms)

    @cached_property
    def people(self) -> Participants:
        return _read_people(self.participants)

    @cached_property
    def listed(self) -> list[Candidate]:
        return _read_candidates(self.candidates) if self.candidates else []

    @cached_property
    def candidates_digest(self) -> str:
        return list_digest(self.candidates) if self.candidates else ""

    @cached_property
    def surviving(self) -> list[tuple[str, bytes]]:
        return _read_survivors(self.survivors) if self.survivors else []


@dataclass(frozen=True, slots=True)
class CommitteeMember:
    """A clerk in a session, and its messages there.

    Attributes
    ----------
    position : in the terms; −1 before they are written.
    session_key, offer : the key of this session and the clerk's signature of it; empty before.
    checked_list, ready, faults : digest of the list it checked last, the devices it can serve, faults of the others.
    commit_signature : its signature of the survivors.
    answer : hexadecimal digest of each of its share sums, by share.
    forget_sent : whether the duty to forget was sent to it.
    """

    task_id: str
    round: int
    cohort: int
    session_number: int
    device_id: str
    owner_id: str
    signing_key: str
    state: ClerkState
    position: int
    selected_at: float
    session_key: str = ""
    offer: str = ""
    checked_list: str = ""
    ready: list[str] = field(default_factory=list)
    faults: dict[str, FaultKind] = field(default_factory=dict)
    commit_signature: str = ""
    answer: dict[str, str] = field(default_factory=dict)
    forget_sent: bool = False

    @property
    def place(self) -> Place:
        return Place(self.task_id, self.cohort, self.round, self.session_number)

    @property
    def digests(self) -> dict[int, bytes]:
        return {int(share): bytes.fromhex(digest) for share, digest in self.answer.items()}


@dataclass(frozen=True, slots=True)
class MaskedUpdate:
    """A device's signed masked delivery, and the positions of its letters in the file."""

    task_id: str
    round: int
    cohort: int
    session_number: int
    device_id: str
    digest: str
    masked_digest: str
    root: str
    letter_key: str
    signature: str
    letters: tuple[tuple[int, int], ...]

    @property
    def candidate(self) -> Candidate:
        signed = (self.masked_digest, self.root, self.letter_key, self.signature)
        return Candidate(self.device_id, *map(bytes.fromhex, signed))


@dataclass(frozen=True, slots=True)
class Share:
    """A share sum: the clerk asked for it, since when, and the digest of the received words."""

    task_id: str
    round: int
    cohort: int
    session_number: int
    share: int
    device_id: str
    asked_at: float
    digest: str = ""


def reported_digests(members: Sequence[CommitteeMember]) -> ReportedDigests:
    """Collect the share digests that the clerks of a session reported."""
    return {member.position: member.digests for member in members if member.answer and member.position >= 0}


def count_commits(members: Sequence[CommitteeMember]) -> int:
    """Count the clerks that committed to the survivors."""
    return sum(bool(member.commit_signature) for member in members)


def votes_of(terms: Terms, members: Sequence[CommitteeMember]) -> Votes:
    """Count the reported share sums."""
    return count_votes(reported_digests(members), len(terms.clerks), terms.threshold)


def is_answered(votes: Votes, members: Sequence[CommitteeMember]) -> bool:
    """Whether no further answer is needed: every share is checked, or all committed clerks have answered."""
    all_checked = not votes.majority and not votes.unsettled
    return all_checked or all(member.answer for member in members if member.commit_signature)


def leading(votes: Votes) -> dict[int, bytes]:
    """Return the digest of every share that is checked or has a majority."""
    return {**votes.checked, **votes.majority}


def wanted_of(
    member: CommitteeMember,
    terms: Terms,
    members: Sequence[CommitteeMember],
    shares: Mapping[int, Share],
    *,
    now: float,
    patience: float,
) -> list[int]:
    """Return the shares whose sums this clerk should upload now.

    One clerk at a time is asked for a share; another one when the first is outvoted, reported another digest or has not
    uploaded within `patience` seconds.
    """
    votes = votes_of(terms, members)
    values, reported = leading(votes), reported_digests(members)
    by_device = {item.device_id: item.position for item in members}
    wanted = []
    for share, value in sorted(values.items()):
        if member.digests.get(share) != value or member.position in votes.outvoted:
            continue
        asked = shares.get(share)
        if asked is None:
            wanted.append(share)
        elif asked.digest != value.hex():
            other = by_device.get(asked.device_id, -1)
            busy = other not in votes.outvoted and reported.get(other, {}).get(share) == value
            if asked.device_id == member.device_id or not busy or now - asked.asked_at >= patience:
                wanted.append(share)
    return wanted


def missing_shares(terms: Terms, members: Sequence[CommitteeMember], shares: Mapping[int, Share]) -> list[int]:
    """Return the shares whose believed sum has not arrived yet."""
    values = leading(votes_of(terms, members))
    return [
        share for share, value in sorted(values.items()) if share not in shares or shares[share].digest != value.hex()
    ]


def duty_of(
    session: SumSession,
    member: CommitteeMember,
    members: Sequence[CommitteeMember],
    shares: Mapping[int, Share],
    *,
    now: float,
    patience: float,
) -> DutyKind | None:
    """Return a clerk's duty in a session now; None while it waits for others."""
    over = session.state in (SumState.DONE, SumState.FAILED) or member.state is ClerkState.RELEASED
    if over or (session.state is SumState.SELECTING and member.state is not ClerkState.SERVING):
        return None if member.forget_sent else DutyKind.FORGET
    if session.state is SumState.SELECTING:
        return None if member.session_key else DutyKind.KEY_OFFER
    if session.state is not SumState.COUNTING or member.position < 0:
        return None
    return _counting_duty(session, member, members, shares, now=now, patience=patience)


def _counting_duty(
    session: SumSession,
    member: CommitteeMember,
    members: Sequence[CommitteeMember],
    shares: Mapping[int, Share],
    *,
    now: float,
    patience: float,
) -> DutyKind | None:
    terms = session.read_terms
    if member.checked_list != session.candidates_digest and not member.commit_signature:
        return DutyKind.READY_CHECK
    if not session.survivors:
        return None
    if not member.commit_signature:
        can = may_join(member.ready, [device for device, _ in session.surviving])
        return DutyKind.COMMIT if can else None
    if count_commits(members) < commit_quorum(len(terms.clerks), terms.threshold):
        return None
    if not member.answer or wanted_of(member, terms, members, shares, now=now, patience=patience):
        return DutyKind.ANSWER
    return None
