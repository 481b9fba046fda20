"""Letters of one round: sealed here for a peer, relayed by the platform, opened there.

The platform names a peer's keys, and a lie about them gains nothing: a letter without noise goes only to members of the
owner's circle, and a letter to a member is sealed to the identity whose fingerprint the owner compared, not to the
sealing key that the platform names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from coterie.agent.home import Outbox
from coterie.client import Platform
from coterie.errors import CorruptDownload, Declined, NotInCircle
from coterie.protocol.keys import BadKeys, DeviceKeys, require_sound, sealed_to_identity
from coterie.protocol.letters import (
    CorruptLetter,
    Header,
    Letter,
    LetterError,
    SeenLetters,
    Stranger,
    Subject,
    Tensors,
    open_letter,
    seal,
)
from coterie.records import Peer, RoundState, WorkItem
from coterie.secure_sums.circle import Circle

POLL_SECONDS = 10.0
_BESIDE_BYTES = 1 << 20
"""What a letter may have beside an update in twice the precision."""


@dataclass(frozen=True, slots=True)
class Received:
    """A letter from a peer: opened, or `fault` says why it could not be; `seconds` is what fetching it took."""

    sender: str
    letter: Letter | None
    fault: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Mail:
    """Sends and receives a device's letters of one round."""

    platform: Platform
    work: WorkItem
    device_id: str
    keys: DeviceKeys
    outbox: Outbox
    circle: Circle = field(default_factory=Circle)
    now: Callable[[], float] = time.time
    _seen: SeenLetters = field(default_factory=SeenLetters)

    def refuse_strangers(self, recipients: Iterable[str], *, noised: bool) -> None:
        """`NotInCircle` unless the owner lets the device write to these peers; `Declined` for keys that hide nothing.

        Without noise each must be in the circle; with noise, only not under another key than it is known by.
        """
        platform_keys = {peer.device_id: peer.signing_key for peer in self.work.peers}
        known = self.circle.members
        names = sorted(set(recipients))
        for peer in self.work.peers:
            if peer.device_id in names:
                _require_sound(peer)
        posing = [name for name in names if name in known and known[name].signing_key != platform_keys.get(name)]
        if posing:
            raise NotInCircle(
                f"{posing[0]} comes with ANOTHER KEY than the one in this device's circle: another device may be "
                f"posing as it; compare fingerprints with its owner, then coterie circle "
                f"remove {posing[0]} and verify it again",
                posing,
            )
        strangers = [] if noised else [name for name in names if name not in known]
        if strangers:
            commands = "; ".join(f"coterie circle verify {name}" for name in strangers[:3])
            raise NotInCircle(
                f"{strangers[0]} is not in this device's circle, and letters without noise go to its members only; "
                f"after comparing fingerprints with its owner: {commands}",
                strangers,
            )

    def send(self, recipient: str, kind: str, tensors: Tensors, *, noised: bool, padding_bytes: int = 1) -> None:
        """Seals tensors for a peer of this round and sends them; `noised` says whether noise hides what they tell.

        The sealed bytes are stored before they are sent, and a repeat after a crash sends those: what was prepared
        first counts, so noise is not drawn twice for one release.
        """
        self.refuse_strangers([recipient], noised=noised)
        sealed = self.outbox.find_letter(self.work.task_id, self.work.round, self._address(recipient, kind))
        if sealed is None:
            header = Header(self._subject(kind), self.device_id, recipient)
            sealed = seal(header, tensors, *self._keys_to(recipient), padding_bytes=padding_bytes)
            self.outbox.put_letter(self.work.task_id, self.work.round, self._address(recipient, kind), sealed)
        self.platform.send_letter(
            self.work.task_id, self.work.round, recipient, sealed, kind=kind, plan_version=self.work.plan_version
        )

    def is_prepared(self, recipient: str, kind: str) -> bool:
        """Whether a letter of this round lies ready, so that `send` needs no new tensors."""
        return self.outbox.find_letter(self.work.task_id, self.work.round, self._address(recipient, kind)) is not None

    def receive(self, kind: str, senders: set[str], *, until: float | None = None) -> Iterator[Received]:
        """Letters of a kind as they come, until all senders have written or are gone, the round ends, or `until`.

        `until` is in Unix seconds; left out, it is the round's deadline.
        """
        deadline = self.work.deadline_at if until is None else until
        waiting, known = set(senders), set[str]()
        while waiting:
            left = deadline - self.now()
            answer = self.platform.letters(
                self.work.task_id,
                self.work.round,
                known=sorted(known),
                wait_seconds=max(0.0, min(left, POLL_SECONDS)),
                plan_version=self.work.plan_version,
            )
            for item in answer.items:
                known.add(item.id)
                current = item.plan_version == self.work.plan_version
                if current and item.kind == kind and item.sender in waiting:
                    waiting.discard(item.sender)
                    yield self._open(kind, item.sender, item.id, item.digest)
            waiting -= set(answer.gone)
            if left <= 0 or (answer.round_state != RoundState.OPEN and not answer.items):
                return

    def _open(self, kind: str, sender: str, letter_id: str, digest: str) -> Received:
        began = time.monotonic()
        most, seconds = 2 * self.work.max_update_bytes + _BESIDE_BYTES, 0.0
        try:
            sealed = self.platform.download_letter(letter_id, digest, most_bytes=most).read_bytes()
            seconds = time.monotonic() - began
            self.refuse_strangers([sender], noised=True)
            return Received(sender, self._opened(sealed, kind, sender), seconds=seconds)
        except (LetterError, Declined, CorruptDownload) as error:
            return Received(sender, None, str(error), seconds)

    def _opened(self, sealed: bytes, kind: str, sender: str) -> Letter:
        """The letter, sealed between identities or between the keys that the platform names."""
        peer = next(peer for peer in self.work.peers if peer.device_id == sender)
        subject = self._subject(kind)
        try:
            between = {sender: sealed_to_identity(peer.signing_key)}
            return open_letter(sealed, self.keys.as_identity(), self.device_id, subject, between, self._seen)
        except (CorruptLetter, Stranger, BadKeys):
            between = {item.device_id: item.sealing_key for item in self.work.peers}
            return open_letter(sealed, self.keys, self.device_id, subject, between, self._seen)

    def _keys_to(self, recipient: str) -> tuple[DeviceKeys, bytes]:
        """Own keys and the recipient's to seal with: identities where the owner knows it, else as the platform says."""
        member = self.circle.members.get(recipient)
        if member is not None:
            return self.keys.as_identity(), sealed_to_identity(member.signing_key)
        return self.keys, {peer.device_id: peer.sealing_key for peer in self.work.peers}[recipient]

    def _subject(self, kind: str) -> Subject:
        return Subject(self.work.task_id, self.work.round, self.work.plan_version, kind)

    def _address(self, recipient: str, kind: str) -> str:
        return f"{self.work.plan_version}|{kind}|{recipient}"


def _require_sound(peer: Peer) -> None:
    try:
        require_sound(peer.signing_key, peer.sealing_key)
    except BadKeys as error:
        raise Declined(f"{peer.device_id}: {error}") from error
