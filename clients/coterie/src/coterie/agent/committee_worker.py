"""A device as clerk of secure sums, in a separate thread, so that it serves duties while it trains.

Few devices are clerks. A device without a sum session does not poll for duties while it waits for work: the reply to
its work poll says when a duty waits. A false call costs one poll; a platform that never calls gets no clerk.

Every duty can be served again after a crash: the clerk's file holds session keys, commits and marks before the clerk
sends anything (`coterie.secure_sums.committee_store`), and the letters restore what was only in memory.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from types import TracebackType

from coterie.client import Platform
from coterie.errors import CoterieError, RoundOver
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.transport import Interrupted, Stop
from coterie.records import Duty, DutyKind
from coterie.secure_sums.canonical import NotCanonical
from coterie.secure_sums.clerk import Answer, Clerk, ReadyCheckMissing
from coterie.secure_sums.committee_store import ClerkRefuses, CommitteeStore
from coterie.secure_sums.protocol_lists import read_candidates
from coterie.secure_sums.terms import BadTerms, Participants, Place, Terms, survivors_digest

POLL_SECONDS = 5.0
BUSY_SECONDS = 10.0
"""A device that is busy and serves no committee asks for duties at this interval."""
_HASTY_SECONDS = 0.2
_FAILED_SECONDS = 1.0
_log = logging.getLogger("coterie.clerk")


class Clerking:
    """Serves duties within a `with` block; logs a duty that fails and asks for it again."""

    def __init__(self, platform: Platform, device_id: str, keys: DeviceKeys, store: CommitteeStore, stop: Stop) -> None:
        """`platform` is this thread's own; `stop` ends its waits."""
        self._platform, self._device_id, self._stop = platform, device_id, stop
        self._clerk, self._ending, self._called = Clerk(device_id, keys, store), threading.Event(), threading.Event()
        self._seated, self._gets_calls = True, False
        # What cannot change while it counts is asked for once: the terms, and the survivors it agreed to.
        self._read: dict[Place, Terms] = {}
        self._survivors: dict[Place, bytes] = {}
        self._thread = threading.Thread(target=self._serve, name=f"clerk-{device_id}", daemon=True)
        self._acts: dict[str, Callable[[Duty, Place], None]] = {
            DutyKind.KEY_OFFER: self._offer,
            DutyKind.READY_CHECK: self._ready_check,
            DutyKind.COMMIT: self._commit,
            DutyKind.ANSWER: self._answer,
            DutyKind.FORGET: self._forget,
        }

    def __enter__(self) -> Clerking:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ending.set()
        self._called.set()
        self._thread.join(timeout=2 * POLL_SECONDS)
        self._stop.set()
        self._platform.close()

    def begin_waiting(self) -> bool:
        """Note that the device polls for work; return whether the reply is to call it as a clerk."""
        self._gets_calls = not self._seated
        return self._gets_calls

    def end_waiting(self, *, called: bool) -> None:
        """Note that the poll for work has returned."""
        self._gets_calls = False
        if called:
            self._seated = True  # as far as is known, until it has asked what for
            self._called.set()

    def _rest(self) -> None:
        """Wait for a call if the work poll reports calls; a committee member does not wait."""
        self._seated = self._clerk.is_seated
        while not self._seated and self._gets_calls and not self._called.wait(BUSY_SECONDS):
            pass
        self._called.clear()

    def _serve(self) -> None:
        last: tuple[Duty, ...] = ()
        try:
            self._clerk.tidy()
            while not self._stop.is_set:
                # Once more when it ends: its last session is to be forgotten.
                ending = self._ending.is_set()
                duties = self._platform.duties(wait_seconds=0.0 if ending else POLL_SECONDS)
                if duties and duties == last:
                    # The platform has not noticed yet, or waits for others; do not hammer it.
                    self._stop.sleep(_HASTY_SECONDS * (1.0 + random.random()))
                last = duties
                self.serve(duties)
                if ending:
                    return
                self._rest()
        except Interrupted:
            return
        except (ClerkRefuses, CoterieError) as error:
            _log.warning("%s serves as a clerk no more: %s", self._device_id, error)

    def serve(self, duties: tuple[Duty, ...]) -> None:
        """Does each of these once."""
        for duty in duties:
            act = self._acts.get(duty.kind)
            try:
                if act is not None:  # a newer platform may know more duties
                    act(duty, Place(duty.task_id, duty.cohort, duty.round, duty.session_number))
            except RoundOver as error:
                _log.info("%s comes too late to %s in round %d: %s", self._device_id, duty.kind, duty.round, error)
            except (ClerkRefuses, BadTerms, NotCanonical, CoterieError) as error:
                _log.warning("%s refuses to %s in round %d: %s", self._device_id, duty.kind, duty.round, error)
                self._stop.sleep(_FAILED_SECONDS)

    # --- duties -------------------------------------------------------------------------------------------------------

    def _offer(self, duty: Duty, place: Place) -> None:
        offer = self._clerk.offer_key(place, duty.deadline_at)
        self._platform.put_key_offer(place, self._device_id, session_key=offer.session_key, signature=offer.signature)

    def _ready_check(self, _duty: Duty, place: Place) -> None:
        self._checked(place, tell=True)

    def _commit(self, _duty: Duty, place: Place) -> None:
        digest, signature = self._sign_commit(place)
        self._survivors[place] = digest
        self._platform.put_commit(place, self._device_id, digest=digest, signature=signature)

    def _answer(self, _duty: Duty, place: Place) -> None:
        terms, survivors = self._terms(place), self._survivors.get(place)
        if survivors is None:  # restarted since its commit
            survivors = survivors_digest(terms.digest, self._platform.sum_survivors(place))
        commits = self._platform.sum_commits(place)
        try:
            answer = self._clerk.answer(terms, survivors, commits)
        except ReadyCheckMissing:  # restarted since its commit
            self._sign_commit(place)
            answer = self._clerk.answer(terms, survivors, commits)
        self._tell(place, answer)

    def _tell(self, place: Place, answer: Answer) -> None:
        wanted = self._platform.put_answer(
            place, self._device_id, digest=answer.survivors, digests=answer.digests, signature=answer.signature
        )
        for share in wanted:
            if share in answer.sums:
                self._platform.put_share(place, self._device_id, share, answer.sums[share].tobytes())

    def _forget(self, _duty: Duty, place: Place) -> None:
        self._clerk.forget(place)
        # Whatever this platform never tells it to forget is not kept either.
        self._read.clear()
        self._survivors.clear()

    # --- parts --------------------------------------------------------------------------------------------------------

    def _terms(self, place: Place) -> Terms:
        if place not in self._read:
            terms = Terms.read(self._platform.sum_terms(place))
            if terms.place != place:
                raise BadTerms("the terms are for another sum than the duty they came with")
            self._read[place] = terms
        return self._read[place]

    def _participants(self, terms: Terms) -> Participants:
        return Participants.read(self._platform.sum_participants(terms.place, terms.participants))

    def _checked(self, place: Place, *, tell: bool) -> None:
        self._read.pop(place, None)  # a platform put back from a backup may have made others since
        terms = self._terms(place)
        candidates = read_candidates(self._platform.sum_candidates(place))
        letters = self._platform.sum_letters(place)
        ready_check = self._clerk.ready_check(terms, self._participants(terms), candidates, letters)
        if tell:
            self._platform.put_ready_check(
                place,
                self._device_id,
                candidates=ready_check.candidates,
                ready=ready_check.ready,
                faults=ready_check.faults,
            )

    def _sign_commit(self, place: Place) -> tuple[bytes, bytes]:
        """Digest of the survivors and this clerk's signature of it; repeats the ready check after a restart."""
        terms, survivors = self._terms(place), self._platform.sum_survivors(place)
        participants = self._participants(terms)
        try:
            signature = self._clerk.commit(terms, participants, survivors)
        except ReadyCheckMissing:
            self._checked(place, tell=False)
            signature = self._clerk.commit(terms, participants, survivors)
        return survivors_digest(terms.digest, survivors), signature
