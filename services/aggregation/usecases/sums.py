"""Secure sums: what clerks are to do, what they are shown and what they say. The platform checks all it can see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from coterie.records.enums import ClerkState, DutyKind, SumDocument, SumState
from coterie.secure_sums.masks import agreement_quorum
from coterie.secure_sums.terms import Place, Terms, agreement_message, answer_message, offer_message, signed_by
from services.aggregation.domain.secure import is_whole_answer
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.sittings import (
    MaskedUpdate,
    Seat,
    Share,
    Sitting,
    agreed,
    duty_of,
    is_told,
    missing_shares,
    votes_of,
    wanted_of,
)
from services.aggregation.errors import (
    AgreedOtherwise,
    BadAgreement,
    BadAnswer,
    NotAClerk,
    SumOver,
    UnknownSum,
)
from services.aggregation.rounds.desk import Desk
from services.aggregation.store import rounds, sittings, tasks
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

    def __init__(self, database: Database, desk: Desk, notifier: Notifier, clock: Clock) -> None:
        self._database, self._desk, self._notifier, self._clock = database, desk, notifier, clock

    async def list_duties(self, device_id: str, wait_seconds: float) -> list[tuple[DutyKind, Sitting]]:
        """Duties of a device; waits for the first. Told to forget, it is not told again."""
        require_device(device_id)
        deadline = latest(self._clock, wait_seconds)
        while True:
            with self._notifier.subscribe(f"duties:{device_id}") as sleeper:
                found, pause = await self._duties(device_id) if device_id in self._desk.devices else ([], math.inf)
                left = deadline - self._clock.now()
                if found or left <= 0:
                    return found
                await sleeper.wait(min(left, pause))

    async def _duties(self, device_id: str) -> tuple[list[tuple[DutyKind, Sitting]], float]:
        """What there is to do, and after how long to look again where nothing is."""
        found: list[tuple[DutyKind, Sitting]] = []
        pause, called = LOOK_SECONDS, self._desk.last_call(device_id)
        async with self._database.reading() as tx:
            seats = await sittings.seats_of_device(tx, device_id)
            for seat in seats:
                sitting = await sittings.find_sitting(tx, seat.place)
                assert sitting is not None  # a seat is in a sitting
                if sitting.state is SumState.COUNTING:
                    pause = COUNTING_LOOK_SECONDS
                kind = await self._duty(tx, sitting, seat)
                if kind is not None:
                    patience = await self._patience(tx, seat.task_id) if kind is DutyKind.OFFER else 0.0
                    found.append((kind, _with_deadline(sitting, kind, patience)))
        forgotten = [sitting.place for kind, sitting in found if kind is DutyKind.FORGET]
        if forgotten:
            async with self._database.writing() as tx:
                for place in forgotten:
                    await sittings.change_seat(tx, place, device_id, told=True)
        if len(forgotten) == len(seats):
            self._desk.dismiss(device_id, called)
        return found, pause

    async def _duty(self, tx: Tx, sitting: Sitting, seat: Seat) -> DutyKind | None:
        """A clerk's duty in one sitting; what the others said is read where it matters, while their sum is counted."""
        now = self._clock.now()
        if sitting.state is not SumState.COUNTING:
            return duty_of(sitting, seat, (), {}, now, 0.0)
        everybody = await sittings.list_seats(tx, seat.place)
        shares = await sittings.list_shares(tx, seat.place)
        patience = await self._patience(tx, seat.task_id)
        return duty_of(sitting, seat, everybody, shares, now, patience * SHARE_PATIENCE)

    async def _patience(self, tx: Tx, task_id: str) -> float:
        task = await tasks.find_task(tx, task_id)
        assert task is not None
        return SumRules.of(task.specification.parameters).patience_seconds(task.specification.round_seconds)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, place: Place, device_id: str, document: SumDocument) -> str:
        """Terms or participants, for the round's devices and the clerks; candidates for the clerks alone."""
        require_device(device_id)
        async with self._database.reading() as tx:
            sitting, seat = await _find(tx, place, device_id)
            in_round = seat is not None or bool(await rounds.states_of(tx, place.task, place.round, [device_id]))
        if not in_round or (seat is None and document is SumDocument.CANDIDATES):
            raise _stranger(device_id)
        if not sitting.terms:
            raise SumOver("the clerks have not all offered themselves yet; ask again when there is work")
        if document is SumDocument.TERMS:
            return sitting.terms
        if document is SumDocument.PARTICIPANTS:
            return sitting.participants
        return _counting(sitting).candidates

    async def list_letters(self, place: Place, device_id: str) -> list[tuple[str, str, int, int]]:
        """(device, blob, start, length) of each candidate's letter to this clerk, by device id."""
        require_device(device_id)
        async with self._database.reading() as tx:
            sitting, seat = await _find(tx, place, device_id)
            masked = {each.device_id: each for each in await sittings.list_masked(tx, place)}
        if seat is None or seat.position < 0:
            raise _stranger(device_id)
        return [_letter(masked[each.device], seat.position) for each in _counting(sitting).listed]

    async def survivors(self, place: Place, device_id: str) -> Sitting:
        """The sitting with its survivors, for a clerk."""
        require_device(device_id)
        async with self._database.reading() as tx:
            sitting, seat = await _find(tx, place, device_id)
        if seat is None:
            raise _stranger(device_id)
        if not _counting(sitting).survivors:
            raise SumOver("the clerks are still mustering; ask for duties again")
        return sitting

    async def agreements(self, place: Place, device_id: str) -> dict[str, str]:
        """Signatures of those who agreed, for a clerk."""
        sitting = await self.survivors(place, device_id)
        async with self._database.reading() as tx:
            seats = await sittings.list_seats(tx, sitting.place)
        return {seat.device_id: seat.agreement for seat in seats if seat.agreement}

    # --- saying -------------------------------------------------------------------------------------------------------

    async def offer(self, place: Place, device_id: str, session_key: str, signature: str) -> None:
        """Takes a clerk's offer; the same again changes nothing."""
        require_device(device_id)
        async with self._database.writing() as tx:
            sitting, seat = await _find(tx, place, device_id, lock=True)
            if seat is None:
                raise _stranger(device_id)
            if seat.session_key == session_key:
                return
            if seat.session_key:
                raise AgreedOtherwise("this clerk has offered another key for this sitting; a key is offered once")
            if sitting.state is not SumState.CALLING or seat.state is not ClerkState.SERVING:
                raise SumOver("this sitting takes no more offers; ask for duties again")
            message = offer_message(place, device_id, bytes.fromhex(session_key))
            if not signed_by(bytes.fromhex(seat.signing_key), message, bytes.fromhex(signature)):
                raise BadAgreement("the offer is not signed by this clerk for this sitting")
            others = [each for each in await sittings.list_seats(tx, place) if each.device_id != device_id]
            if any(each.session_key == session_key for each in others):
                raise BadAgreement("another clerk has offered this very key; make one of your own")
            await sittings.change_seat(tx, place, device_id, session_key=session_key, offer=signature)
        if all(each.session_key for each in others if each.state is ClerkState.SERVING):
            self._wake_chair(place)

    async def muster(
        self, place: Place, device_id: str, candidates: str, ready: Sequence[str], faults: Mapping[str, str]
    ) -> None:
        """Takes a clerk's word on the candidates it was shown."""
        require_device(device_id)
        async with self._database.writing() as tx:
            sitting, seat = await self._clerk(tx, place, device_id)
            if candidates != sitting.candidates_digest:
                raise SumOver("the list of candidates is another now; ask for duties again")
            if seat.agreement and seat.mustered == candidates:
                return  # it has agreed: what it says now of others is too late
            known = {each.device for each in sitting.listed}
            said = {device for device in ready if device in known}
            wrong = {device: kind for device, kind in faults.items() if device in known - said}
            await sittings.change_seat(
                tx, place, device_id, mustered=candidates, ready=sorted(said, key=str.encode), faults=wrong
            )
            seats = await sittings.list_seats(tx, place)
        if sum(each.mustered == candidates for each in seats) >= sitting.read_terms.quorum:
            self._wake_chair(place)

    async def agree(self, place: Place, device_id: str, digest: str, signature: str) -> None:
        """Takes a clerk's agreement to the survivors."""
        require_device(device_id)
        async with self._database.writing() as tx:
            sitting, seat = await self._clerk(tx, place, device_id)
            _check_survivors(sitting, digest)
            message = agreement_message(sitting.read_terms.digest, bytes.fromhex(digest))
            if not signed_by(bytes.fromhex(seat.signing_key), message, bytes.fromhex(signature)):
                raise BadAgreement("the agreement is not signed by this clerk for these survivors")
            await sittings.change_seat(tx, place, device_id, agreement=signature)
            seats = await sittings.list_seats(tx, place)
        if agreed(seats) >= sitting.read_terms.quorum:
            self._desk.call(each.device_id for each in seats if each.agreement and not each.answer)

    async def answer(
        self, place: Place, device_id: str, digest: str, digests: Mapping[int, str], signature: str
    ) -> list[int]:
        """Takes the digests of a clerk's share sums; which of the sums are wanted of it now."""
        require_device(device_id)
        async with self._database.writing() as tx:
            sitting, seat = await self._clerk(tx, place, device_id)
            _check_survivors(sitting, digest)
            seats = await sittings.list_seats(tx, place)
            _check_answer(sitting.read_terms, seat, seats, bytes.fromhex(digest), digests, signature)
            told = {str(share): digests[share] for share in sorted(digests)}
            if seat.answer and seat.answer != told:
                raise AgreedOtherwise("this clerk has told other sums of its shares before")
            await sittings.change_seat(tx, place, device_id, answer=told)
            seat = replace(seat, answer=told)
            seats = [seat if each.device_id == device_id else each for each in seats]
            wanted = await self._want(tx, sitting.read_terms, seat, seats)
        if is_told(votes_of(sitting.read_terms, seats), seats):
            self._wake_chair(place)
        return wanted

    async def _want(self, tx: Tx, terms: Terms, seat: Seat, seats: Sequence[Seat]) -> list[int]:
        shares, now = await sittings.list_shares(tx, seat.place), self._clock.now()
        patience = await self._patience(tx, seat.task_id) * SHARE_PATIENCE
        wanted = wanted_of(seat, terms, seats, shares, now, patience)
        place = (seat.task_id, seat.round, seat.cohort, seat.sitting)
        for share in wanted:
            await sittings.put_share(tx, Share(*place, share, seat.device_id, now))
        return wanted

    async def admit_share(self, place: Place, device_id: str, share: int, digest: str) -> tuple[int, bool]:
        """Bytes a share sum must have, and whether it is stored already; refuses one the clerk did not sign."""
        require_device(device_id)
        async with self._database.reading() as tx:
            sitting, seat = await _find(tx, place, device_id)
            shares = await sittings.list_shares(tx, place)
        if seat is None:
            raise _stranger(device_id)
        _check_share(seat, share, digest)
        terms = _counting(sitting).read_terms
        stored = share in shares and shares[share].digest == digest
        return terms.elements * terms.bits // 8, stored

    async def take_share(self, place: Place, device_id: str, share: int, digest: str) -> None:
        """Notes that the words of a share sum lie in the blob store."""
        require_device(device_id)
        async with self._database.writing() as tx:
            sitting, seat = await self._clerk(tx, place, device_id)
            _check_share(seat, share, digest)
            where = (place.task, place.round, place.cohort, place.sitting)
            await sittings.put_share(tx, Share(*where, share, device_id, self._clock.now(), digest))
            seats, shares = await sittings.list_seats(tx, place), await sittings.list_shares(tx, place)
        if not missing_shares(sitting.read_terms, seats, shares):
            self._wake_chair(place)

    # --- parts --------------------------------------------------------------------------------------------------------

    async def _clerk(self, tx: Tx, place: Place, device_id: str) -> tuple[Sitting, Seat]:
        """A counting sitting, locked, and the clerk's seat in it."""
        sitting, seat = await _find(tx, place, device_id, lock=True)
        if seat is None or (sitting.terms and seat.position < 0):
            raise _stranger(device_id)
        return _counting(sitting), seat

    def _wake_chair(self, place: Place) -> None:
        """When enough have spoken for it to go on; while somebody is silent, time wakes it."""
        self._notifier.notify(f"task:{place.task}")


async def _find(tx: Tx, place: Place, device_id: str, *, lock: bool = False) -> tuple[Sitting, Seat | None]:
    sitting = await sittings.find_sitting(tx, place, lock=lock)
    if sitting is None:
        raise UnknownSum(f"round {place.round} of {place.task} has no sum {place.cohort} in sitting {place.sitting}")
    return sitting, await sittings.find_seat(tx, place, device_id)


def _stranger(device_id: str) -> NotAClerk:
    return NotAClerk(f"device {device_id} is no clerk of this sum; ask for duties to see of which it is")


def _counting(sitting: Sitting) -> Sitting:
    if sitting.state is not SumState.COUNTING:
        raise SumOver(f"this sitting is {sitting.state}, not counting; ask for duties again")
    return sitting


def _check_survivors(sitting: Sitting, digest: str) -> None:
    if not sitting.survivors:
        raise SumOver("the clerks are still mustering; ask for duties again")
    if digest != sitting.digest:
        raise AgreedOtherwise("the survivors of this sitting are others; read them again")


def _check_answer(
    terms: Terms,
    seat: Seat,
    seats: Sequence[Seat],
    survivors: bytes,
    digests: Mapping[int, str],
    signature: str,
) -> None:
    if not seat.agreement:
        raise BadAnswer("this clerk has not agreed to the survivors; agree first")
    if agreed(seats) < agreement_quorum(len(terms.clerks), terms.threshold):
        raise SumOver("too few clerks have agreed yet; ask for duties again")
    if not is_whole_answer(seat.position, digests, len(terms.clerks), terms.threshold):
        raise BadAnswer("a clerk tells the sums of exactly the shares it holds")
    told = {share: bytes.fromhex(digest) for share, digest in digests.items()}
    message = answer_message(terms.digest, survivors, told)
    if not signed_by(bytes.fromhex(seat.signing_key), message, bytes.fromhex(signature)):
        raise BadAnswer("the answer is not signed by this clerk for these survivors")


def _check_share(seat: Seat, share: int, digest: str) -> None:
    if seat.answer.get(str(share)) != digest:
        raise BadAnswer(f"the words of share {share} do not hash to what this clerk signed; answer first")


def _letter(masked: MaskedUpdate, position: int) -> tuple[str, str, int, int]:
    start, length = masked.letters[position]
    return masked.device_id, masked.digest, start, length


def _with_deadline(sitting: Sitting, kind: DutyKind, patience: float) -> Sitting:
    """An offer is for the whole sitting: its clerk must not forget before the counting is over."""
    if kind is not DutyKind.OFFER:
        return sitting
    return replace(sitting, deadline_at=sitting.deadline_at + patience)
