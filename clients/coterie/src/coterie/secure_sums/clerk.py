"""A clerk's work in one session: offer a key, check candidates, commit to survivors, report share sums, forget.

Every step is a pure function of the platform's documents and the clerk's file, so a clerk repeats it after a crash with
the same bytes. No step trusts the platform: the clerk checks the terms, the participants and every signature itself,
and commits to one set of survivors per session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nacl.public import PrivateKey

from coterie.protocol.keys import DeviceKeys
from coterie.secure_sums import masks
from coterie.secure_sums.committee_store import ClerkRefuses, CommitteeStore
from coterie.secure_sums.letters import Fault, FaultKind, Opened, open_seeds
from coterie.secure_sums.masks import Words, commit_quorum, digest
from coterie.secure_sums.protocol_lists import Candidate, Survivors, candidates_text, in_company, list_digest, lonely
from coterie.secure_sums.terms import (
    Participants,
    Place,
    Terms,
    answer_message,
    commit_message,
    offer_message,
    signed_by,
    survivors_digest,
    upload_message,
)


class NotAClerk(ClerkRefuses):
    """The terms do not name this device with the key it offered."""


class BadSurvivors(ClerkRefuses):
    """Survivors that this clerk cannot commit to."""


class ReadyCheckMissing(ClerkRefuses):
    """The clerk has restarted and lost the seeds; repeat the ready check and the commit, then ask again."""


class TooFewCommits(ClerkRefuses):
    """Fewer than q clerks committed to these survivors, so the clerk reveals nothing."""


@dataclass(frozen=True, slots=True)
class KeyOffer:
    """A key for one session, signed."""

    session_key: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    """The candidates that a clerk can serve, by id, and the faults of the others."""

    candidates: str
    ready: tuple[str, ...]
    faults: Mapping[str, FaultKind]


@dataclass(frozen=True, slots=True)
class Answer:
    """Sums of a clerk's shares over the survivors D: their digests, signed, and the words themselves."""

    survivors: bytes
    digests: Mapping[int, bytes]
    signature: bytes
    sums: Mapping[int, Words]


@dataclass(slots=True)
class _ClerkSession:
    """A clerk's memory of a place. Seeds are stored nowhere else."""

    terms: bytes
    opened: dict[tuple[str, bytes], Opened]
    committed: tuple[bytes, list[tuple[str, Opened]]] | None = None
    answer: Answer | None = None


class Clerk:
    """A device as clerk of any number of sums; serves one duty at a time."""

    def __init__(
        self, device: str, keys: DeviceKeys, store: CommitteeStore, clock: Callable[[], float] = time.time
    ) -> None:
        self._device, self._keys, self._store, self._clock = device, keys, store, clock
        self._sessions: dict[Place, _ClerkSession] = {}

    def offer_key(self, place: Place, deadline_at: float) -> KeyOffer:
        """Return a signed session key for a place, stored before it is returned; idempotent."""
        self.tidy()
        private = self._store.open_session(place, lambda: bytes(PrivateKey.generate()), self._clock(), deadline_at)
        self._drop(lambda other: (other.round, other.session_number) < (place.round, place.session_number), place)
        public = bytes(PrivateKey(private).public_key)
        return KeyOffer(public, self._keys.sign(offer_message(place, self._device, public)))

    def ready_check(
        self, terms: Terms, participants: Participants, candidates: list[Candidate], letters: Mapping[str, bytes]
    ) -> ReadyCheck:
        """Open every candidate's letter, then drop candidates without their required company."""
        position, session_key = self._assignment(terms)
        participants.check(terms)
        opened: dict[str, Opened] = {}
        faults: dict[str, FaultKind] = {}
        for candidate in candidates:
            try:
                letter = letters.get(candidate.device)
                opened[candidate.device] = _open(
                    terms, participants, position, session_key, candidate=candidate, letter=letter
                )
            except Fault as fault:
                faults[candidate.device] = fault.kind
        ready = in_company(opened, participants.key_digests)
        faults.update(dict.fromkeys(opened.keys() - ready, "company"))
        self._remember(terms, {(c.device, c.root): opened[c.device] for c in candidates if c.device in opened})
        return ReadyCheck(
            list_digest(candidates_text(candidates)),
            tuple(sorted(ready, key=str.encode)),
            {device: faults[device] for device in sorted(faults, key=str.encode)},
        )

    def commit(self, terms: Terms, participants: Participants, survivors: Survivors) -> bytes:
        """Sign D once (T, D) is on disk; idempotent, and never for other survivors."""
        self._assignment(terms)
        participants.check(terms)
        members = self._checked(terms, participants, survivors)
        chosen = survivors_digest(terms.digest, survivors)
        self._store.commit(terms.place, terms.digest, chosen)
        session = self._sessions[terms.place]
        session.committed = (chosen, list(members.items()))
        return self._keys.sign(commit_message(terms.digest, chosen))

    def answer(self, terms: Terms, survivors: bytes, commits: Mapping[str, bytes]) -> Answer:
        """Return the sums of this clerk's shares, if it and q clerks in all committed to the survivors D."""
        position, _ = self._assignment(terms)
        if self._store.committed(terms.place) != (terms.digest, survivors):
            raise BadSurvivors(
                "this clerk has not committed to these survivors, so it reveals nothing; commit to them first"
            )
        if _count_commits(terms, survivors, commits) < commit_quorum(len(terms.clerks), terms.threshold):
            raise TooFewCommits(
                "too few clerks committed to these survivors, so this clerk reveals nothing; wait for more commits"
            )
        session = self._sessions.get(terms.place)
        if session is None or session.committed is None or session.committed[0] != survivors:
            raise ReadyCheckMissing(
                "this clerk has restarted and lost its seeds; send it the letters and the survivors again"
            )
        if session.answer is None:
            session.answer = self._summed(terms, position, survivors, session.committed[1])
        return session.answer

    def forget(self, place: Place) -> None:
        """End the session: mark it, then delete its records and seeds."""
        self._store.forget(place)
        self._drop(lambda other: (other.round, other.session_number) <= (place.round, place.session_number), place)

    @property
    def is_seated(self) -> bool:
        """Whether it has offered a key for a session that is not over."""
        return not self._store.is_empty

    def tidy(self) -> None:
        """Forget expired sessions: a day after the deadline, eight days after the offer at most."""
        for place in self._store.due(self._clock()):
            self.forget(place)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _assignment(self, terms: Terms) -> tuple[int, bytes]:
        """Return this clerk's position in the terms and its live session key; refuse terms that name another key."""
        session_key = self._store.session(terms.place)
        position = terms.position(self._device)
        if position is None:
            raise NotAClerk("the terms do not name this device as a clerk")
        named = terms.clerks[position]
        if named.session_key != bytes(PrivateKey(session_key).public_key):
            raise NotAClerk("the terms name this clerk with another session key than the one it offered")
        if named.signing_key != self._keys.public().signing:
            raise NotAClerk("the terms name this clerk with another signing key than its own")
        return position, session_key

    def _remember(self, terms: Terms, opened: dict[tuple[str, bytes], Opened]) -> None:
        """Store what the last ready check opened; letters opened under other terms of the place do not count."""
        session = self._sessions.get(terms.place)
        if session is None or session.terms != terms.digest:
            self._sessions[terms.place] = _ClerkSession(terms.digest, opened)
        else:
            session.opened = opened

    def _checked(self, terms: Terms, participants: Participants, survivors: Survivors) -> dict[str, Opened]:
        """Return each survivor's opened letter, if this clerk can commit to the set."""
        names = [device for device, _ in survivors]
        if names != sorted(set(names), key=str.encode):
            raise BadSurvivors("the list of survivors must be sorted by id without duplicates")
        if len(names) < terms.least:
            raise BadSurvivors(f"{len(names)} survivors are fewer than the {terms.least} the terms promise")
        session = self._sessions.get(terms.place)
        if session is None or session.terms != terms.digest:
            raise ReadyCheckMissing("this clerk has checked no candidates under these terms; send it the letters again")
        members = {}
        for device, root in survivors:
            known = session.opened.get((device, root))
            if known is None:
                raise BadSurvivors(f"survivor {device} was not checked by this clerk with these seeds")
            members[device] = known
        if lonely(members, participants.key_digests, members):
            raise BadSurvivors("a survivor lacks the company it requires among the survivors")
        return members

    def _summed(self, terms: Terms, position: int, survivors: bytes, members: list[tuple[str, Opened]]) -> Answer:
        sums = {
            share: masks.share_sum(
                terms.digest,
                share,
                ((device, letter.seeds[share]) for device, letter in members),
                terms.elements,
                terms.bits,
            )
            for share in terms.held(position)
        }
        digests = {share: digest(words.tobytes()) for share, words in sums.items()}
        signature = self._keys.sign(answer_message(terms.digest, survivors, digests))
        return Answer(survivors, digests, signature, sums)

    def _drop(self, over: Callable[[Place], bool], like: Place) -> None:
        for place in list(self._sessions):
            if (place.task, place.cohort) == (like.task, like.cohort) and over(place):
                del self._sessions[place]


def _open(
    terms: Terms,
    participants: Participants,
    position: int,
    session_key: bytes,
    *,
    candidate: Candidate,
    letter: bytes | None,
) -> Opened:
    signing_key = participants.keys.get(candidate.device)
    if signing_key is None:
        raise Fault("stranger")
    message = upload_message(
        terms.digest,
        candidate.device,
        masked_digest=candidate.masked_digest,
        root=candidate.root,
        letter_key=candidate.letter_key,
    )
    if not signed_by(signing_key, message, candidate.signature):
        raise Fault("signature")
    if letter is None:
        raise Fault("letter")
    return open_seeds(
        letter,
        terms,
        position,
        session_key,
        device=candidate.device,
        letter_key=candidate.letter_key,
        signed_root=candidate.root,
    )


def _count_commits(terms: Terms, survivors: bytes, commits: Mapping[str, bytes]) -> int:
    """Count the clerks of the terms that signed D; ignore invalid signatures."""
    message = commit_message(terms.digest, survivors)
    return sum(
        signed_by(clerk.signing_key, message, commits[clerk.device])
        for clerk in terms.clerks
        if clerk.device in commits
    )
