"""Sittings of secure sums as the books hold them, and what a clerk is to do next.

A sitting is one committee serving one sum of one round. Everything in it is written once: terms before devices see
them, survivors before clerks see them, and a new sitting is a new row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from coterie.records.enums import ClerkState, DutyKind, SumState
from coterie.secure_sums.letters import FaultKind
from coterie.secure_sums.masks import agreement_quorum
from coterie.secure_sums.protocol_lists import Candidate, list_digest, read_candidates, read_survivors
from coterie.secure_sums.terms import Participants, Place, Terms
from services.aggregation.domain.secure import Votes, count_votes, may_join

OUT_OF_RANGE = "sum_out_of_range"
"""How the reason of a sitting begins whose sum no honest devices could have made."""
Told = dict[int, dict[int, bytes]]
"""Digests by clerk's position and share."""

# A sitting is read from its row at every step; its texts never change once written, so each is read into objects once.
_read_terms = lru_cache(32)(Terms.read)
_read_people = lru_cache(32)(Participants.read)
_read_candidates = lru_cache(32)(read_candidates)
_read_survivors = lru_cache(32)(read_survivors)


@dataclass(frozen=True)
class Sitting:
    """One sitting.

    Attributes
    ----------
    attempt : attempts at this cohort's sum in the round, this one included.
    since : when the present state began; in counting, the present muster or the settling of the survivors.
    deadline_at : when patience with the present state ends.
    clip_norm, noise_multiplier, heaviest : what the terms are made from.
    participants, terms, candidates, survivors : canonical texts; empty until there are any.
    asked : positions of the clerks asked in the present muster.
    digest : D of the survivors.
    opened : blob of the opened sum.
    reason : why the sitting failed.
    """

    task_id: str
    round: int
    cohort: int
    sitting: int
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
        return Place(self.task_id, self.cohort, self.round, self.sitting)

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
class Seat:
    """A clerk in a sitting, and all it has said there.

    Attributes
    ----------
    position : in the terms; −1 before they are written.
    session_key, offer : the key of this sitting and the clerk's signature of it; empty before.
    mustered, ready, faults : digest of the list it mustered last, whom it can serve, what is wrong with others.
    agreement : its signature of the survivors.
    answer : hexadecimal digest of each of its share sums, by share.
    told : whether it was told to forget.
    """

    task_id: str
    round: int
    cohort: int
    sitting: int
    device_id: str
    owner_id: str
    signing_key: str
    state: ClerkState
    position: int
    called_at: float
    session_key: str = ""
    offer: str = ""
    mustered: str = ""
    ready: list[str] = field(default_factory=list)
    faults: dict[str, FaultKind] = field(default_factory=dict)
    agreement: str = ""
    answer: dict[str, str] = field(default_factory=dict)
    told: bool = False

    @property
    def place(self) -> Place:
        return Place(self.task_id, self.cohort, self.round, self.sitting)

    @property
    def digests(self) -> dict[int, bytes]:
        return {int(share): bytes.fromhex(digest) for share, digest in self.answer.items()}


@dataclass(frozen=True, slots=True)
class MaskedUpdate:
    """What a device signed when it delivered masked words, and where its letters lie in the file."""

    task_id: str
    round: int
    cohort: int
    sitting: int
    device_id: str
    digest: str
    masked_digest: str
    root: str
    letter_key: str
    signature: str
    letters: tuple[tuple[int, int], ...]

    @property
    def candidate(self) -> Candidate:
        told = (self.masked_digest, self.root, self.letter_key, self.signature)
        return Candidate(self.device_id, *map(bytes.fromhex, told))


@dataclass(frozen=True, slots=True)
class Share:
    """A share sum: of whom it is wanted since when, and the digest of the words that came."""

    task_id: str
    round: int
    cohort: int
    sitting: int
    share: int
    device_id: str
    asked_at: float
    digest: str = ""


def told_by(seats: Sequence[Seat]) -> Told:
    """What the clerks of a sitting told of their shares."""
    return {seat.position: seat.digests for seat in seats if seat.answer and seat.position >= 0}


def agreed(seats: Sequence[Seat]) -> int:
    """How many clerks agreed to the survivors."""
    return sum(bool(seat.agreement) for seat in seats)


def votes_of(terms: Terms, seats: Sequence[Seat]) -> Votes:
    """Where the count of the shares stands."""
    return count_votes(told_by(seats), len(terms.clerks), terms.threshold)


def is_told(votes: Votes, seats: Sequence[Seat]) -> bool:
    """Whether no further answer is waited for: every share is checked, or all who agreed have answered."""
    all_checked = not votes.majority and not votes.unsettled
    return all_checked or all(seat.answer for seat in seats if seat.agreement)


def leading(votes: Votes) -> dict[int, bytes]:
    """The digest of every share that is checked or told by a majority."""
    return {**votes.checked, **votes.majority}


def wanted_of(
    seat: Seat, terms: Terms, seats: Sequence[Seat], shares: Mapping[int, Share], now: float, patience: float
) -> list[int]:
    """Shares whose sums are wanted of a clerk now: of one clerk at a time, of another when that one is outvoted, told
    something else or has kept it for longer than `patience`."""
    votes = votes_of(terms, seats)
    values, told = leading(votes), told_by(seats)
    by_device = {each.device_id: each.position for each in seats}
    wanted = []
    for share, value in sorted(values.items()):
        if seat.digests.get(share) != value or seat.position in votes.outvoted:
            continue
        asked = shares.get(share)
        if asked is None:
            wanted.append(share)
        elif asked.digest != value.hex():
            other = by_device.get(asked.device_id, -1)
            busy = other not in votes.outvoted and told.get(other, {}).get(share) == value
            if asked.device_id == seat.device_id or not busy or now - asked.asked_at >= patience:
                wanted.append(share)
    return wanted


def missing_shares(terms: Terms, seats: Sequence[Seat], shares: Mapping[int, Share]) -> list[int]:
    """Shares whose believed sum has not come yet."""
    values = leading(votes_of(terms, seats))
    return [
        share for share, value in sorted(values.items()) if share not in shares or shares[share].digest != value.hex()
    ]


def duty_of(
    sitting: Sitting, seat: Seat, seats: Sequence[Seat], shares: Mapping[int, Share], now: float, patience: float
) -> DutyKind | None:
    """What a clerk is to do in a sitting now; None when it waits for others."""
    over = sitting.state in (SumState.DONE, SumState.FAILED) or seat.state is ClerkState.RELEASED
    if over or (sitting.state is SumState.CALLING and seat.state is not ClerkState.SERVING):
        return None if seat.told else DutyKind.FORGET
    if sitting.state is SumState.CALLING:
        return None if seat.session_key else DutyKind.OFFER
    if sitting.state is not SumState.COUNTING or seat.position < 0:
        return None
    return _counting_duty(sitting, seat, seats, shares, now, patience)


def _counting_duty(
    sitting: Sitting, seat: Seat, seats: Sequence[Seat], shares: Mapping[int, Share], now: float, patience: float
) -> DutyKind | None:
    terms = sitting.read_terms
    if seat.mustered != sitting.candidates_digest and not seat.agreement:
        return DutyKind.MUSTER
    if not sitting.survivors:
        return None
    if not seat.agreement:
        can = may_join(seat.ready, [device for device, _ in sitting.surviving])
        return DutyKind.AGREE if can else None
    if agreed(seats) < agreement_quorum(len(terms.clerks), terms.threshold):
        return None
    if not seat.answer or wanted_of(seat, terms, seats, shares, now, patience):
        return DutyKind.ANSWER
    return None
