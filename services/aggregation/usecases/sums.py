"""Secure sums: duties of clerks, the documents they read and what they report. The platform checks all it can see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from coterie.records.enums import ClerkState, DutyKind, SumDocument, SumState
from coterie.secure_sums.masks import commit_quorum
from coterie.secure_sums.terms import Place, Terms, answer_message, commit_message, offer_message, signed_by
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.sum_decisions import is_whole_answer
from services.aggregation.domain.sum_sessions import (
    CommitteeMember,
    MaskedUpdate,
    Share,
    SumSession,
    count_commits,
    duty_of,
    is_answered,
    missing_shares,
    votes_of,
    wanted_of,
)
from services.aggregation.errors import (
    BadAnswer,
    BadCommit,
    ConflictingCommit,
    NotAClerk,
    SumOver,
    UnknownSum,
)
from services.aggregation.secure_sums.duty_index import DutyIndex
from services.aggregation.store import rounds, sum_sessions, tasks
from services.aggregation.usecases.waiting import latest
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.notify.notifier import Notifier
from services.kit.rpc.principal import require_device
from services.kit.runtime.clock import Clock

COUNTING_LOOK_SECONDS, LOOK_SECONDS = 1.0, 5.0
"""How often duties are looked up while a clerk waits, where a sum of its is counting and elsewhere: time makes duties
too, and so do other replicas. What happens here wakes it at once."""
SHARE_PATIENCE = 0.25
"""Part of the patience with clerks after which a share is wanted of another one."""


class SumUseCases:
    """What devices may ask about secure sums."""

    def __init__(self, database: Database, duty_index: DutyIndex, notifier: Notifier, clock: Clock) -> None:
        self._database, self._duty_index, self._notifier, self._clock = database, duty_index, notifier, clock

    async def list_duties(self, device_id: str, wait_seconds: float) -> list[tuple[DutyKind, SumSession]]:
        """Return the duties of a device, waiting for the first; a duty to forget is returned once."""
        require_device(device_id)
        deadline = latest(self._clock, wait_seconds)
        while True:
            with self._notifier.subscribe(f"duties:{device_id}") as sleeper:
                result, pause = (
                    await self._duties(device_id) if device_id in self._duty_index.devices else ([], math.inf)
                )
                left = deadline - self._clock.now()
                if result or left <= 0:
                    return result
                await sleeper.wait(min(left, pause))

    async def _duties(self, device_id: str) -> tuple[list[tuple[DutyKind, SumSession]], float]:
        """What there is to do, and after how long to look again where nothing is."""
        result: list[tuple[DutyKind, SumSession]] = []
        pause, last_wake = LOOK_SECONDS, self._duty_index.last_wake(device_id)
        async with self._database.reading() as tx:
            members = await sum_sessions.members_of_device(tx, device_id)
            for member in members:
                session = await sum_sessions.find_session(tx, member.place)
                assert session is not None  # a member is in a session
                if session.state is SumState.COUNTING:
                    pause = COUNTING_LOOK_SECONDS
                kind = await self._duty(tx, session, member)
                if kind is not None:
                    patience = await self._patience(tx, member.task_id) if kind is DutyKind.KEY_OFFER else 0.0
                    result.append((kind, _with_deadline(session, kind, patience)))
        forgotten = [session.place for kind, session in result if kind is DutyKind.FORGET]
        if forgotten:
            async with self._database.writing() as tx:
                for place in forgotten:
                    await sum_sessions.change_member(tx, place, device_id, forget_sent=True)
        if len(forgotten) == len(members):
            self._duty_index.remove(device_id, last_wake)
        return result, pause

    async def _duty(self, tx: Tx, session: SumSession, member: CommitteeMember) -> DutyKind | None:
        """A clerk's duty in one session; reads the other members only while their sum is counted."""
        now = self._clock.now()
        if session.state is not SumState.COUNTING:
            return duty_of(session, member, (), {}, now=now, patience=0.0)
        committee = await sum_sessions.list_members(tx, member.place)
        shares = await sum_sessions.list_shares(tx, member.place)
        patience = await self._patience(tx, member.task_id)
        return duty_of(session, member, committee, shares, now=now, patience=patience * SHARE_PATIENCE)

    async def _patience(self, tx: Tx, task_id: str) -> float:
        task = await tasks.find_task(tx, task_id)
        assert task is not None
        return SumRules.of(task.specification.parameters).patience_seconds(task.specification.round_seconds)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, place: Place, device_id: str, document: SumDocument) -> str:
        """Terms or participants, for the round's devices and the clerks; candidates for the clerks alone."""
        require_device(device_id)
        async with self._database.reading() as tx:
            session, member = await _find(tx, place, device_id)
            in_round = member is not None or bool(await rounds.states_of(tx, place.task, place.round, [device_id]))
        if not in_round or (member is None and document is SumDocument.CANDIDATES):
            raise _stranger(device_id)
        if not session.terms:
            raise SumOver("the clerks have not all offered themselves yet; ask again when there is work")
        if document is SumDocument.TERMS:
            return session.terms
        if document is SumDocument.PARTICIPANTS:
            return session.participants
        return _counting(session).candidates

    async def list_letters(self, place: Place, device_id: str) -> list[tuple[str, str, int, int]]:
        """(device, blob, start, length) of each candidate's letter to this clerk, by device id."""
        require_device(device_id)
        async with self._database.reading() as tx:
            session, member = await _find(tx, place, device_id)
            masked = {item.device_id: item for item in await sum_sessions.list_masked(tx, place)}
        if member is None or member.position < 0:
            raise _stranger(device_id)
        return [_letter(masked[item.device], member.position) for item in _counting(session).listed]

    async def survivors(self, place: Place, device_id: str) -> SumSession:
        """The session with its survivors, for a clerk."""
        require_device(device_id)
        async with self._database.reading() as tx:
            session, member = await _find(tx, place, device_id)
        if member is None:
            raise _stranger(device_id)
        if not _counting(session).survivors:
            raise SumOver("the clerks have not fixed the survivors yet; ask for duties again")
        return session

    async def commits(self, place: Place, device_id: str) -> dict[str, str]:
        """Signatures of those who agreed, for a clerk."""
        session = await self.survivors(place, device_id)
        async with self._database.reading() as tx:
            members = await sum_sessions.list_members(tx, session.place)
        return {member.device_id: member.commit_signature for member in members if member.commit_signature}

    # --- saying -------------------------------------------------------------------------------------------------------

    async def offer_key(self, place: Place, device_id: str, session_key: str, signature: str) -> None:
        """Takes a clerk's offer; the same again changes nothing."""
        require_device(device_id)
        async with self._database.writing() as tx:
            session, member = await _find(tx, place, device_id, lock=True)
            if member is None:
                raise _stranger(device_id)
            if member.session_key == session_key:
                return
            if member.session_key:
                raise ConflictingCommit("this clerk has offered another key for this session; a key is offered once")
            if session.state is not SumState.SELECTING or member.state is not ClerkState.SERVING:
                raise SumOver("this session takes no more offers; ask for duties again")
            message = offer_message(place, device_id, bytes.fromhex(session_key))
            if not signed_by(bytes.fromhex(member.signing_key), message, bytes.fromhex(signature)):
                raise BadCommit("the offer is not signed by this clerk for this session")
            others = [item for item in await sum_sessions.list_members(tx, place) if item.device_id != device_id]
            if any(other.session_key == session_key for other in others):
                raise BadCommit("another clerk has offered this very key; make one of your own")
            await sum_sessions.change_member(tx, place, device_id, session_key=session_key, offer=signature)
        if all(other.session_key for other in others if other.state is ClerkState.SERVING):
            self._wake_coordinator(place)

    async def ready_check(
        self, place: Place, device_id: str, candidates: str, ready: Sequence[str], faults: Mapping[str, str]
    ) -> None:
        """Takes a clerk's word on the candidates it was shown."""
        require_device(device_id)
        async with self._database.writing() as tx:
            session, member = await self._clerk(tx, place, device_id)
            if candidates != session.candidates_digest:
                raise SumOver("the list of candidates is another now; ask for duties again")
            if member.commit_signature and member.checked_list == candidates:
                return  # it has agreed: what it says now of others is too late
            known = {item.device for item in session.listed}
            confirmed = {device for device in ready if device in known}
            wrong = {device: kind for device, kind in faults.items() if device in known - confirmed}
            await sum_sessions.change_member(
                tx, place, device_id, checked_list=candidates, ready=sorted(confirmed, key=str.encode), faults=wrong
            )
            members = await sum_sessions.list_members(tx, place)
        if sum(item.checked_list == candidates for item in members) >= session.read_terms.quorum:
            self._wake_coordinator(place)

    async def commit(self, place: Place, device_id: str, digest: str, signature: str) -> None:
        """Takes a clerk's agreement to the survivors."""
        require_device(device_id)
        async with self._database.writing() as tx:
            session, member = await self._clerk(tx, place, device_id)
            _check_survivors(session, digest)
            message = commit_message(session.read_terms.digest, bytes.fromhex(digest))
            if not signed_by(bytes.fromhex(member.signing_key), message, bytes.fromhex(signature)):
                raise BadCommit("the agreement is not signed by this clerk for these survivors")
            await sum_sessions.change_member(tx, place, device_id, commit_signature=signature)
            members = await sum_sessions.list_members(tx, place)
        if count_commits(members) >= session.read_terms.quorum:
            self._duty_index.wake(item.device_id for item in members if item.commit_signature and not item.answer)

    async def answer(
        self, place: Place, device_id: str, digest: str, digests: Mapping[int, str], signature: str
    ) -> list[int]:
        """Takes the digests of a clerk's share sums; which of the sums are wanted of it now."""
        require_device(device_id)
        async with self._database.writing() as tx:
            session, member = await self._clerk(tx, place, device_id)
            _check_survivors(session, digest)
            members = await sum_sessions.list_members(tx, place)
            _check_answer(session.read_terms, member, members, bytes.fromhex(digest), digests, signature)
            reported = {str(share): digests[share] for share in sorted(digests)}
            if member.answer and member.answer != reported:
                raise ConflictingCommit("this clerk has already sent different sums of its shares")
            await sum_sessions.change_member(tx, place, device_id, answer=reported)
            member = replace(member, answer=reported)
            members = [member if item.device_id == device_id else item for item in members]
            wanted = await self._want(tx, session.read_terms, member, members)
        if is_answered(votes_of(session.read_terms, members), members):
            self._wake_coordinator(place)
        return wanted

    async def _want(
        self, tx: Tx, terms: Terms, member: CommitteeMember, members: Sequence[CommitteeMember]
    ) -> list[int]:
        shares, now = await sum_sessions.list_shares(tx, member.place), self._clock.now()
        patience = await self._patience(tx, member.task_id) * SHARE_PATIENCE
        wanted = wanted_of(member, terms, members, shares, now=now, patience=patience)
        place = (member.task_id, member.round, member.cohort, member.session_number)
        for share in wanted:
            await sum_sessions.put_share(tx, Share(*place, share, member.device_id, now))
        return wanted

    async def admit_share(self, place: Place, device_id: str, share: int, digest: str) -> tuple[int, bool]:
        """Bytes a share sum must have, and whether it is stored already; refuses one the clerk did not sign."""
        require_device(device_id)
        async with self._database.reading() as tx:
            session, member = await _find(tx, place, device_id)
            shares = await sum_sessions.list_shares(tx, place)
        if member is None:
            raise _stranger(device_id)
        _check_share(member, share, digest)
        terms = _counting(session).read_terms
        stored = share in shares and shares[share].digest == digest
        return terms.elements * terms.bits // 8, stored

    async def take_share(self, place: Place, device_id: str, share: int, digest: str) -> None:
        """Notes that the words of a share sum lie in the blob store."""
        require_device(device_id)
        async with self._database.writing() as tx:
            session, member = await self._clerk(tx, place, device_id)
            _check_share(member, share, digest)
            where = (place.task, place.round, place.cohort, place.session_number)
            await sum_sessions.put_share(tx, Share(*where, share, device_id, self._clock.now(), digest))
            members, shares = await sum_sessions.list_members(tx, place), await sum_sessions.list_shares(tx, place)
        if not missing_shares(session.read_terms, members, shares):
            self._wake_coordinator(place)

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _clerk(self, tx: Tx, place: Place, device_id: str) -> tuple[SumSession, CommitteeMember]:
        """A counting session, locked, and the clerk's member in it."""
        session, member = await _find(tx, place, device_id, lock=True)
        if member is None or (session.terms and member.position < 0):
            raise _stranger(device_id)
        return _counting(session), member

    def _wake_coordinator(self, place: Place) -> None:
        """Wake the coordinator when enough clerks have answered; otherwise its timer does."""
        self._notifier.notify(f"task:{place.task}")


async def _find(
    tx: Tx, place: Place, device_id: str, *, lock: bool = False
) -> tuple[SumSession, CommitteeMember | None]:
    session = await sum_sessions.find_session(tx, place, lock=lock)
    if session is None:
        raise UnknownSum(
            f"round {place.round} of {place.task} has no sum {place.cohort} in session {place.session_number}"
        )
    return session, await sum_sessions.find_member(tx, place, device_id)


def _stranger(device_id: str) -> NotAClerk:
    return NotAClerk(f"device {device_id} is not a clerk of this sum; ask for duties to see its own sums")


def _counting(session: SumSession) -> SumSession:
    if session.state is not SumState.COUNTING:
        raise SumOver(f"this session is {session.state}, not counting; ask for duties again")
    return session


def _check_survivors(session: SumSession, digest: str) -> None:
    if not session.survivors:
        raise SumOver("the clerks have not fixed the survivors yet; ask for duties again")
    if digest != session.digest:
        raise ConflictingCommit("the survivors of this session are others; read them again")


def _check_answer(
    terms: Terms,
    member: CommitteeMember,
    members: Sequence[CommitteeMember],
    survivors: bytes,
    digests: Mapping[int, str],
    signature: str,
) -> None:
    if not member.commit_signature:
        raise BadAnswer("this clerk has not agreed to the survivors; agree first")
    if count_commits(members) < commit_quorum(len(terms.clerks), terms.threshold):
        raise SumOver("too few clerks have agreed yet; ask for duties again")
    if not is_whole_answer(member.position, digests, len(terms.clerks), terms.threshold):
        raise BadAnswer("a clerk tells the sums of exactly the shares it holds")
    sums = {share: bytes.fromhex(digest) for share, digest in digests.items()}
    message = answer_message(terms.digest, survivors, sums)
    if not signed_by(bytes.fromhex(member.signing_key), message, bytes.fromhex(signature)):
        raise BadAnswer("the answer is not signed by this clerk for these survivors")


def _check_share(member: CommitteeMember, share: int, digest: str) -> None:
    if member.answer.get(str(share)) != digest:
        raise BadAnswer(f"the words of share {share} do not hash to what this clerk signed; answer first")


def _letter(masked: MaskedUpdate, position: int) -> tuple[str, str, int, int]:
    start, length = masked.letters[position]
    return masked.device_id, masked.digest, start, length


def _with_deadline(session: SumSession, kind: DutyKind, patience: float) -> SumSession:
    """An offer is for the whole session: its clerk must not forget before the counting is over."""
    if kind is not DutyKind.KEY_OFFER:
        return session
    return replace(session, deadline_at=session.deadline_at + patience)
