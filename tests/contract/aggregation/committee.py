"""Devices and clerks of a secure task, played over real gRPC with the real clerk of the device package."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coterie.privacy.stream import FreshStream
from coterie.records.enums import DutyKind
from coterie.secure_sums.clerk import Clerk, ReadyCheckMissing
from coterie.secure_sums.committee_store import CommitteeStore
from coterie.secure_sums.contribution import contribution
from coterie.secure_sums.protocol_lists import framed, read_candidates, read_framed
from coterie.secure_sums.terms import Participants, Place, Terms
from coterie.secure_sums.uploads import Upload, make_upload
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.kit.errors import CoterieError
from services.kit.rpc.enums import word
from services.kit.rpc.principal import Principal, set_principal
from tests.attacks.sum_fixture import keys_of, owner_of
from tests.contract.aggregation.conftest import Client, ServiceFixture

SECURE = {"sums": {"mode": "secure", "offer_seconds": 20, "clerk_seconds": 40}}


@dataclass
class Committee:
    """All devices of a secure task. `silent` devices do no duty; `twists` change what a clerk says.

    `may_answer` says whether a clerk tells its shares now. Else who is heard is a matter of time: a sum is closed when
    enough clerks have told the same.
    """

    client: Client
    folder: Path
    devices: Sequence[str]
    silent: set[str] = field(default_factory=set)
    desks: dict[str, Clerk] = field(default_factory=dict)
    done: list[tuple[str, DutyKind]] = field(default_factory=list)
    twists: dict[str, Callable[[DutyKind, Any], Any]] = field(default_factory=dict)
    may_answer: Callable[[str], bool] = lambda _: True

    @classmethod
    def of(cls, service: ServiceFixture, client: Client, folder: Path, devices: Sequence[str]) -> Committee:
        """Enter the devices in the registry, each with a separate owner."""
        service.fakes.owners |= {device: owner_of(device) for device in devices}
        service.fakes.keys |= {device: keys_of(device).public().signing for device in devices}
        return cls(client, folder, devices)

    def desk(self, device: str) -> Clerk:
        if device not in self.desks:
            self.desks[device] = Clerk(device, keys_of(device), CommitteeStore(self.folder / f"{device}.db"))
        return self.desks[device]

    # --- devices ------------------------------------------------------------------------------------------------------

    async def deliver(
        self, device: str, change: Iterable[float], *, weight: float = 10.0, wait: float = 10.0, **changes: Any
    ) -> pb.SubmitUpdateReply:
        """A device takes its work and hands masked words in."""
        item = await self.client.get_work(device, wait)
        terms = Terms.read(item.sum)
        upload = self.masked(device, terms, change, weight if terms.noise == 0 else 1.0)
        return await self.send(item, device, terms, *upload, weight=weight if terms.noise == 0 else 1.0, **changes)

    def masked(self, device: str, terms: Terms, change: Iterable[float], weight: float) -> tuple[Upload, bytes]:
        values = contribution(np.array(list(change), np.float32), terms, weight, FreshStream())
        return make_upload(values, terms, device, keys_of(device), [], 0)

    async def send(
        self,
        item: pb.WorkItem,
        device: str,
        terms: Terms,
        upload: Upload,
        signature: bytes,
        *,
        body: bytes | None = None,
        **changes: Any,
    ) -> pb.SubmitUpdateReply:
        data = upload.body() if body is None else body
        digest = await self.client.service.blobs.put_bytes(data)
        set_principal(Principal("device", device))
        request: dict[str, Any] = {
            "task_id": item.task_id,
            "round": item.round,
            "device_id": device,
            "digest": digest,
            "size_bytes": len(data),
            "form": words.FORM_MASKED,
            "sum": pb.SumSeal(terms=terms.digest.hex(), signature=signature.hex()),
        } | changes
        return await self.client.work.SubmitUpdate(pb.SubmitUpdateRequest(**request))

    # --- clerks -------------------------------------------------------------------------------------------------------

    async def serve(self, device: str, wait: float = 0.0) -> list[DutyKind]:
        """Poll once for a device and do all duties of the reply."""
        set_principal(Principal("device", device))
        reply = await self.client.sums.ListDuties(pb.ListDutiesRequest(device_id=device, wait_seconds=wait), timeout=30)
        kinds = []
        for duty in reply.duties:
            kind = word(DutyKind, duty.kind)
            if kind is DutyKind.ANSWER and not self.may_answer(device):
                continue
            try:
                await self._do(device, kind, duty)
            except CoterieError as error:
                if error.reason not in ("sum_over", "conflicting_commit"):
                    raise
            kinds.append(kind)
            self.done.append((device, kind))
        return kinds

    def has(self, device: str, kind: DutyKind) -> bool:
        """Whether a device has done such a duty."""
        return (device, kind) in self.done

    async def _do(self, device: str, kind: DutyKind, duty: pb.Duty) -> None:
        place = Place(duty.task_id, duty.cohort, duty.round, duty.session_number)
        where, desk, sums = _where(place), self.desk(device), self.client.sums
        twist = self.twists.get(device, _as_it_is)
        if kind is DutyKind.KEY_OFFER:
            offer = desk.offer_key(place, duty.deadline_at)
            texts = (offer.session_key.hex(), offer.signature.hex())
            await sums.PutKeyOffer(
                pb.PutKeyOfferRequest(place=where, device_id=device, session_key=texts[0], signature=texts[1])
            )
        elif kind is DutyKind.READY_CHECK:
            ready_check = twist(kind, await self.ready_check(device, place))
            await sums.PutReadyCheck(
                pb.PutReadyCheckRequest(
                    place=where,
                    device_id=device,
                    candidates=ready_check.candidates,
                    ready=ready_check.ready,
                    faults=dict(ready_check.faults),
                )
            )
        elif kind is DutyKind.COMMIT:
            digest, signature = await self.commit(device, place)
            await sums.PutCommit(
                pb.PutCommitRequest(place=where, device_id=device, digest=digest, signature=signature.hex())
            )
        elif kind is DutyKind.ANSWER:
            await self._answer(device, place, twist)
        else:
            desk.forget(place)

    async def terms(self, device: str, place: Place) -> tuple[Terms, Participants]:
        texts = [
            (
                await self.client.sums.ReadSum(pb.ReadSumRequest(place=_where(place), device_id=device, document=item))
            ).text
            for item in (words.SUM_DOCUMENT_TERMS, words.SUM_DOCUMENT_PARTICIPANTS)
        ]
        return Terms.read(texts[0]), Participants.read(texts[1])

    async def ready_check(self, device: str, place: Place) -> Any:
        where, sums, blobs = _where(place), self.client.sums, self.client.service.blobs
        terms, people = await self.terms(device, place)
        listed = await sums.ReadSum(
            pb.ReadSumRequest(place=where, device_id=device, document=words.SUM_DOCUMENT_CANDIDATES)
        )
        reply = await sums.ListSumLetters(pb.SumReader(place=where, device_id=device))
        stream = b"".join(
            framed(letter.device_id, bytes(blobs.read(letter.digest, letter.start, letter.length)))
            for letter in reply.letters
        )
        letters = dict(read_framed(io.BytesIO(stream)))
        return self.desk(device).ready_check(terms, people, read_candidates(listed.text), letters)

    async def commit(self, device: str, place: Place) -> tuple[str, bytes]:
        terms, people = await self.terms(device, place)
        result = await self.client.sums.GetSurvivors(pb.SumReader(place=_where(place), device_id=device))
        survivors = [(survivor.device_id, bytes.fromhex(survivor.root)) for survivor in result.survivors]
        return result.digest, self.desk(device).commit(terms, people, survivors)

    async def _answer(self, device: str, place: Place, twist: Callable[[DutyKind, Any], Any]) -> None:
        where, sums = _where(place), self.client.sums
        terms, _ = await self.terms(device, place)
        result = await sums.GetSurvivors(pb.SumReader(place=where, device_id=device))
        signed = (await sums.GetCommits(pb.SumReader(place=where, device_id=device))).signatures
        commits = {clerk: bytes.fromhex(signature) for clerk, signature in signed.items()}
        digest = bytes.fromhex(result.digest)
        try:
            answer = self.desk(device).answer(terms, digest, commits)
        except ReadyCheckMissing:  # the clerk restarted
            await self.ready_check(device, place)
            await self.commit(device, place)
            answer = self.desk(device).answer(terms, digest, commits)
        answer = twist(DutyKind.ANSWER, answer)
        reply = await sums.PutAnswer(
            pb.PutAnswerRequest(
                place=where,
                device_id=device,
                digest=digest.hex(),
                digests={share: item.hex() for share, item in answer.digests.items()},
                signature=answer.signature.hex(),
            )
        )
        for share in reply.wanted:
            stored = await self.client.service.blobs.put_bytes(answer.sums[share].tobytes())
            await sums.PutShare(pb.ShareRequest(place=where, device_id=device, share=share, digest=stored))

    async def attend(
        self, until: Callable[[], Any], among: Collection[str] | None = None, seconds: float = 120.0
    ) -> None:
        """Every device that is not silent polls for duties until the condition holds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not await until():
            if loop.time() > end:
                raise AssertionError(f"the condition never held; done: {self.done[-20:]}")
            for device in self.devices if among is None else among:
                if device not in self.silent:
                    await self.serve(device)
            await asyncio.sleep(0.01)

    async def until_work(self, device: str) -> None:
        """Serves until the device has work, so that its sum is open."""
        await self.attend(lambda: self.has_work(device))

    async def has_work(self, device: str) -> bool:
        set_principal(Principal("device", device))
        return bool((await self.client.work.GetWork(pb.GetWorkRequest(device_id=device))).items)

    async def round(
        self, changes: Mapping[str, Sequence[float]], weight: Callable[[str], float] = lambda _: 10.0
    ) -> None:
        """One whole round: these devices deliver these changes."""
        await self.until_work(next(iter(changes)))
        for device, change in changes.items():
            await self.deliver(device, change, weight=weight(device))

    async def finish(self, task_id: str, seconds: float = 180.0) -> pb.Task:
        """Serve until the task has ended and every device has received its order to forget."""

        async def ended() -> bool:
            task = await self.client.get_task(task_id)
            return task.state not in (words.TASK_STATE_CREATED, words.TASK_STATE_RUNNING)

        await self.attend(ended, seconds=seconds)
        for device in self.devices:
            if device not in self.silent:
                await self.serve(device)
        return await self.client.get_task(task_id)


def _as_it_is(kind: DutyKind, result: Any) -> Any:
    return result


def _where(place: Place) -> pb.SumPlace:
    return pb.SumPlace(task_id=place.task, round=place.round, cohort=place.cohort, session_number=place.session_number)
