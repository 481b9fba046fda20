"""Letters of one round: sealed here for a peer, carried by the platform, opened there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from coterie.client import Platform
from coterie.home import Outbox
from coterie.keys import DeviceKeys
from coterie.letters import Header, Letter, LetterError, SeenLetters, Subject, Tensors, open_letter, seal
from coterie.records import RoundState, WorkItem

POLL_SECONDS = 10.0


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
    now: Callable[[], float] = time.time
    _seen: SeenLetters = field(default_factory=SeenLetters)

    def send(self, recipient: str, kind: str, tensors: Tensors, *, padding_bytes: int = 1) -> None:
        """Seals tensors for a peer of this round and sends them.

        The sealed bytes are stored before they are sent, and a repeat after a crash sends those: what was prepared
        first counts, so noise is not drawn twice for one release.
        """
        sealed = self.outbox.find_letter(self.work.task_id, self.work.round, self._address(recipient, kind))
        if sealed is None:
            key = {peer.device_id: peer.sealing_key for peer in self.work.peers}[recipient]
            header = Header(self._subject(kind), self.device_id, recipient)
            sealed = seal(header, tensors, self.keys, key, padding_bytes=padding_bytes)
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
        sealed = self.platform.download_letter(letter_id, digest).read_bytes()
        seconds = time.monotonic() - began
        peers = {peer.device_id: peer.sealing_key for peer in self.work.peers}
        try:
            opened = open_letter(sealed, self.keys, self.device_id, self._subject(kind), peers, self._seen)
        except LetterError as error:
            return Received(sender, None, str(error), seconds)
        return Received(sender, opened, seconds=seconds)

    def _subject(self, kind: str) -> Subject:
        return Subject(self.work.task_id, self.work.round, self.work.plan_version, kind)

    def _address(self, recipient: str, kind: str) -> str:
        return f"{self.work.plan_version}|{kind}|{recipient}"
