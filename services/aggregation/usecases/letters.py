"""Letters between devices that work together in a round: the platform carries them and cannot read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coterie.records.enums import LetterKind, ParticipationState, RoundState
from services.aggregation.domain.records import Letter
from services.aggregation.errors import LetterTooLarge, RoundOver
from services.aggregation.rounds.intake import Intake
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.rounds.round_registry import RoundRegistry
from services.aggregation.store import models, rounds
from services.aggregation.usecases.quota import Quota
from services.aggregation.usecases.visibility import see_inside
from services.aggregation.usecases.waiting import latest
from services.kit.database.blobs import check_digest
from services.kit.database.engine import Database
from services.kit.errors import CoterieError, InvalidInput, Unavailable
from services.kit.notify.notifier import Notifier
from services.kit.notify.replica_notifier import ReplicaNotifier
from services.kit.rpc.principal import require_device
from services.kit.runtime.clock import Clock
from services.kit.runtime.ids import new_id


class BadLetter(InvalidInput):
    """The letter is not one this round expects."""


class LetterUseCases:
    """What devices may send each other."""

    def __init__(
        self,
        database: Database,
        open_rounds: RoundRegistry,
        intake: Intake,
        notifier: Notifier,
        replica_notifier: ReplicaNotifier,
        clock: Clock,
        quota: Quota,
    ) -> None:
        self._database, self._open_rounds, self._intake = database, open_rounds, intake
        self._notifier, self._replica_notifier, self._clock, self._quota = notifier, replica_notifier, clock, quota

    async def admit(self, letter: Letter) -> int:
        """Largest body taken for this letter; raises when the letter would be refused."""
        open_round = self._check_sending(letter)
        await self._quota.check(letter.sender, letter.size_bytes or open_round.max_letter_bytes())
        return open_round.max_letter_bytes()

    async def send(self, letter: Letter) -> Letter:
        """Store a letter between two devices that work together in an open round. Deletes refused bytes."""
        key = f"letters:{letter.task_id}:{letter.recipient}"
        try:
            self._check_sending(letter)
            async with self._database.writing() as tx:
                stored = await models.add_letter(tx, replace(letter, id=new_id("let"), sent_at=self._clock.now()))
                await self._replica_notifier.carry(tx, key)
            if stored.digest != letter.digest:
                raise BadLetter(
                    f"another letter to {letter.recipient} is stored for this round; letters are not replaced"
                )
        except Unavailable:
            raise  # it will be sent again
        except CoterieError:
            await self._intake.discard(letter.digest)
            raise
        self._notifier.notify(key)
        return stored

    async def forget(self, device_id: str) -> int:
        """Delete every letter from or to a device; return how many."""
        require_device(device_id)
        async with self._database.writing() as tx:
            digests = await models.take_letters_of(tx, device_id)
        for digest in digests:
            await self._intake.discard(digest)
        return len(digests)

    def _check_sending(self, letter: Letter) -> OpenRound:
        """The round a letter belongs to; raises when its sender may not send it."""
        require_device(letter.sender)
        check_digest(letter.digest)
        open_round = self._open_rounds.get(letter.task_id)
        if open_round is None or open_round.round.number != letter.round:
            raise RoundOver(f"round {letter.round} of {letter.task_id} is not open; ask for work again")
        if letter.kind not in list(LetterKind):
            raise BadLetter(f"kind must be one of {', '.join(LetterKind)}, not {str(letter.kind)!r}")
        item = open_round.roster.items.get(letter.sender)
        if item is not None and letter.plan_version != item.plan_version:
            raise RoundOver(f"plan {letter.plan_version} is replaced by plan {item.plan_version}; ask for work again")
        if item is None or letter.recipient not in {peer.device_id for peer in item.peers}:
            raise BadLetter(f"the plan has no link from {letter.sender} to {letter.recipient} in this round")
        if letter.size_bytes > open_round.max_letter_bytes():
            limit = open_round.max_letter_bytes()
            raise LetterTooLarge(
                f"the letter has {letter.size_bytes} bytes, at most {limit} are taken in this round",
                details={"limit_bytes": str(limit)},
            )
        return open_round

    async def list_letters(
        self,
        task_id: str,
        number: int,
        device_id: str,
        known: Sequence[str],
        wait_seconds: float,
        plan_version: int = 0,
    ) -> tuple[list[Letter], RoundState, list[str]]:
        """Return new letters to a device, the round's state, and peers that will send nothing more.

        Refuses a device that waits under a replaced plan: no letter would come.
        """
        require_device(device_id)
        await self._require_part(task_id, device_id)
        deadline = latest(self._clock, wait_seconds)
        seen = set(known)
        while True:
            with self._notifier.subscribe(f"letters:{task_id}", f"letters:{task_id}:{device_id}") as subscription:
                async with self._database.reading() as tx:
                    result = [x for x in await models.list_letters(tx, task_id, number, device_id) if x.id not in seen]
                    round_ = await rounds.find_round(tx, task_id, number)
                state = RoundState.UNKNOWN if round_ is None else round_.state
                self._refuse_replaced(task_id, number, device_id, plan_version)
                left = deadline - self._clock.now()
                if result or state is not RoundState.OPEN or left <= 0:
                    return result, state, self._gone(task_id, number)
                await subscription.wait(left)

    async def _require_part(self, task_id: str, device_id: str) -> None:
        """Require that a device has joined the task; participants of the open round have."""
        open_round = self._open_rounds.get(task_id)
        if open_round is None or device_id not in open_round.roster.items:
            async with self._database.reading() as tx:
                await see_inside(tx, task_id)

    def _refuse_replaced(self, task_id: str, number: int, device_id: str, plan_version: int) -> None:
        open_round = self._open_rounds.get(task_id)
        if open_round is None or open_round.round.number != number or not plan_version:
            return
        item = open_round.roster.items.get(device_id)
        if item is not None and item.plan_version > plan_version:
            raise RoundOver(f"plan {plan_version} is replaced by plan {item.plan_version}; ask for work again")

    def _gone(self, task_id: str, number: int) -> list[str]:
        open_round = self._open_rounds.get(task_id)
        if open_round is None or open_round.round.number != number:
            return []
        out = (ParticipationState.DECLINED, ParticipationState.DROPPED)
        return [device for device, state in open_round.roster.states.items() if state in out]
