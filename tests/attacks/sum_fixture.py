"""A secure sum played in one process: devices, clerks with their files, and a platform that can lie."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.protocol.keys import DeviceKeys
from coterie.secure_sums import masks
from coterie.secure_sums.acceptance import Myself, Promise
from coterie.secure_sums.circle import Circle, Member
from coterie.secure_sums.clerk import Answer, Clerk, KeyOffer, ReadyCheck
from coterie.secure_sums.committee_store import CommitteeStore
from coterie.secure_sums.protocol_lists import Candidate
from coterie.secure_sums.terms import NamedClerk, Participants, Place, Terms, offer_message, survivors_digest
from coterie.secure_sums.uploads import Upload, make_upload
from services.aggregation.domain.masked import MaskedFile, check_signed, read_file
from services.aggregation.domain.sum_decisions import CheckAgain, Settled, judge_ready_checks

MODEL = hashlib.sha256(b"a model").hexdigest()
TASK = "tsk_hall"
NOON = 1_000_000.0


def keys_of(name: str) -> DeviceKeys:
    return DeviceKeys(
        hashlib.sha256(b"sign" + name.encode()).digest(), hashlib.sha256(b"seal" + name.encode()).digest()
    )


def names(count: int) -> list[str]:
    return [f"dev_{number:02}" for number in range(count)]


def owner_of(device: str) -> str:
    return f"own_{device}"


@dataclass
class Delivery:
    """What a device handed in, and what it meant to add."""

    device: str
    values: NDArray[np.int64]
    upload: Upload
    signature: bytes

    @property
    def candidate(self) -> Candidate:
        up = self.upload
        return Candidate(self.device, up.masked_digest, up.root, up.letter_key, self.signature)


@dataclass
class SumFixture:
    """The first `clerks` devices are clerks; all devices take part."""

    folder: Path
    devices: Sequence[str] = field(default_factory=lambda: names(8))
    clerks: int = 4
    threshold: int = 2
    bits: int = 64
    elements: int = 5
    least: int = 4
    round: int = 1
    session_number: int = 1
    cohort: int = 0
    now: float = NOON
    desks: dict[str, Clerk] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for device in self.devices[: self.clerks]:
            self.start(device)

    def start(self, device: str) -> Clerk:
        """A clerk's process, started (again) on its file."""
        self.desks[device] = Clerk(
            device, keys_of(device), CommitteeStore(self.folder / f"{device}.db"), lambda: self.now
        )
        return self.desks[device]

    @property
    def place(self) -> Place:
        return Place(TASK, self.cohort, self.round, self.session_number)

    @property
    def participants(self) -> Participants:
        return Participants.of({device: keys_of(device).public().signing for device in self.devices})

    def offers(self) -> dict[str, KeyOffer]:
        return {device: desk.offer_key(self.place, NOON + 600) for device, desk in self.desks.items()}

    def terms(self, offers: Mapping[str, KeyOffer] | None = None) -> Terms:
        """What an honest platform writes, without noise."""
        offered = self.offers() if offers is None else offers
        clerks = tuple(
            NamedClerk(device, owner_of(device), keys_of(device).public().signing, offer.session_key, offer.signature)
            for device, offer in offered.items()
        )
        return Terms(
            task=TASK,
            round=self.round,
            session_number=self.session_number,
            cohort=self.cohort,
            plan_version=1,
            model=MODEL,
            elements=self.elements,
            bits=self.bits,
            scale=masks_scale(len(self.devices)),
            count=len(self.devices),
            least=self.least,
            honest=self.least - self.threshold + 1,
            clip_norm="1.0",
            noise_multiplier="0.0",
            heaviest="1.0",
            participants=self.participants.digest,
            threshold=self.threshold,
            quorum=masks.commit_quorum(self.clerks, self.threshold),
            clerks=clerks,
        )

    def deliver(
        self, terms: Terms, device: str, values: Iterable[int] | None = None, circle: Circle | None = None
    ) -> Delivery:
        """A device's delivery; `circle` says whose company it insists on."""
        chosen = np.array(list(values) if values is not None else values_of(device, self.elements), dtype=np.int64)
        known = circle or Circle()
        company = [
            masks.digest(member.signing_key) for name, member in known.members.items() if name in self.participants.keys
        ]
        upload, signature = make_upload(
            chosen, terms, device, keys_of(device), company if known.company_least else [], known.company_least
        )
        return Delivery(device, chosen, upload, signature)

    def deliver_all(self, terms: Terms, without: Sequence[str] = ()) -> dict[str, Delivery]:
        return {device: self.deliver(terms, device) for device in self.devices if device not in without}

    def ready_check(
        self, terms: Terms, clerk: str, deliveries: Mapping[str, Delivery], participants: Participants | None = None
    ) -> ReadyCheck:
        position = terms.position(clerk)
        assert position is not None
        ordered = [deliveries[device] for device in sorted(deliveries, key=str.encode)]
        letters = {item.device: item.upload.letters[position] for item in ordered}
        return self.desks[clerk].ready_check(
            terms, participants or self.participants, [item.candidate for item in ordered], letters
        )

    def ready_check_all(self, terms: Terms, deliveries: Mapping[str, Delivery]) -> dict[str, ReadyCheck]:
        return {clerk: self.ready_check(terms, clerk, deliveries) for clerk in self.desks}

    def commit_all(self, terms: Terms, survivors: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
        return {clerk: desk.commit(terms, self.participants, survivors) for clerk, desk in self.desks.items()}

    def answer_all(self, terms: Terms, chosen: bytes, commits: Mapping[str, bytes]) -> dict[str, Answer]:
        return {clerk: desk.answer(terms, chosen, commits) for clerk, desk in self.desks.items()}

    def settle(self, terms: Terms, deliveries: Mapping[str, Delivery], silent: Sequence[str] = ()) -> Settled:
        """Ready checks as an honest platform holds them, until the clerks can serve the same survivors."""
        asked: frozenset[int] = frozenset(range(len(terms.clerks)))
        candidates = dict(deliveries)
        while True:
            ready_checks = {
                at: self.ready_check(terms, terms.clerks[at].device, candidates).ready
                for at in asked
                if terms.clerks[at].device not in silent
            }
            step = judge_ready_checks(
                ready_checks, asked, candidates, least=terms.least, quorum=terms.quorum, patience_over=bool(silent)
            )
            if isinstance(step, Settled):
                return step
            assert isinstance(step, CheckAgain), step
            asked, candidates = step.committee, {device: deliveries[device] for device in step.candidates}

    def open(self, terms: Terms, deliveries: Mapping[str, Delivery]) -> NDArray[np.int64]:
        """The whole count by honest hands: X."""
        settled = self.settle(terms, deliveries)
        survivors = survivors_of(deliveries, settled.survivors)
        clerks = [terms.clerks[at].device for at in sorted(settled.committee)]
        commits = {clerk: self.desks[clerk].commit(terms, self.participants, survivors) for clerk in clerks}
        chosen = chosen_digest(terms, survivors)
        answers = [self.desks[clerk].answer(terms, chosen, commits) for clerk in clerks]
        return open_sum(terms, [deliveries[device] for device in settled.survivors], answers)


def masks_scale(devices: int) -> int:
    from coterie.secure_sums.grid import clear_scale

    return clear_scale(devices, 1.0)


def values_of(device: str, elements: int) -> list[int]:
    seed = int.from_bytes(hashlib.sha256(device.encode()).digest()[:8], "big")
    return [int(value) for value in np.random.default_rng(seed).integers(-(2**40), 2**40, elements)]


def survivors_of(deliveries: Mapping[str, Delivery], chosen: Iterable[str] | None = None) -> list[tuple[str, bytes]]:
    wanted = set(deliveries if chosen is None else chosen)
    return [
        (device, deliveries[device].upload.root) for device in sorted(deliveries, key=str.encode) if device in wanted
    ]


def chosen_digest(terms: Terms, survivors: Sequence[tuple[str, bytes]]) -> bytes:
    return survivors_digest(terms.digest, survivors)


def open_sum(terms: Terms, deliveries: Iterable[Delivery], answers: Iterable[Answer]) -> NDArray[np.int64]:
    """X, from the survivors' deliveries and whatever answers came, the first teller of each share being believed."""
    total = np.zeros(terms.elements, masks.word_type(terms.bits))
    for delivery in deliveries:
        total += delivery.upload.masked
    sums: dict[int, masks.Words] = {}
    for answer in answers:
        for share, words in answer.sums.items():
            sums.setdefault(share, words)
    assert len(sums) == terms.shares
    return masks.opened(total, sums.values())


def clear_sum(deliveries: Iterable[Delivery]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = np.sum([delivery.values for delivery in deliveries], axis=0)
    return total


def circle_of(devices: Iterable[str], **settings: object) -> Circle:
    members = {device: Member(keys_of(device).public().signing, owner_of(device)) for device in devices}
    return dataclasses.replace(Circle(members), **settings)  # type: ignore[arg-type]


def myself(device: str, elements: int = 5) -> Myself:
    return Myself(device, owner_of(device), keys_of(device).public().signing, MODEL, elements)


PROMISE = Promise(clerks=4, threshold=2, colluders=1, noise_multiplier=0.0)


def resigned(terms: Terms, device: str) -> Terms:
    """The same terms with a fresh session key and a valid offer of one clerk, made with its signing key."""
    other = hashlib.sha256(b"another session").digest()
    clerks = tuple(
        dataclasses.replace(
            clerk,
            session_key=other,
            signature=keys_of(device).sign(offer_message(terms.place, clerk.device, other)),
        )
        if clerk.device == device
        else clerk
        for clerk in terms.clerks
    )
    return dataclasses.replace(terms, clerks=clerks)


def check_signed_body(body: bytes, terms: Terms, device: str, signing_key: bytes, signature: bytes) -> MaskedFile:
    """Read a delivery's body as the platform does, and check its signature."""

    def read(start: int, length: int) -> bytes:
        return body[start : start + length]

    file = read_file(read, len(body), terms)
    check_signed(file, read, terms, device=device, signing_key=signing_key, signature=signature)
    return file
