"""Letters: tensors sealed by one device for another, which the platform carries but cannot read.

A letter is a NaCl box (Curve25519, XSalsa20, Poly1305) between the two devices' sealing keys, so that opening it also
proves who sent it. Its header travels outside, for the platform to route by, and again inside the box; a letter whose
two headers differ is corrupt. Tensors travel as safetensors, which holds no code. The platform sees the header, the
size and the time, nothing else; sizes can be rounded up with `padding_bytes`.

Layout: magic (8) · header length (4, big-endian) · header · box(header length · header · payload length (8) · payload ·
zeros). A header is canonical JSON.

    LetterError
    ├── CorruptLetter       damaged, forged, or not a letter
    ├── WrongRecipient      sealed for another device
    ├── Stranger            the sender is not among the peers of this round
    ├── WrongRound          for another task, round, plan or purpose than the one expected
    └── ReplayedLetter      this sender's letter was already accepted
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from nacl.bindings import crypto_box_beforenm, crypto_box_NONCEBYTES, crypto_box_open_afternm
from nacl.exceptions import CryptoError
from nacl.public import Box, PrivateKey, PublicKey
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save as save_tensors

from coterie.learning.tensor_files import load as load_tensors
from coterie.protocol.keys import DeviceKeys

Tensors: TypeAlias = dict[str, NDArray[Any]]

MAXIMUM_BYTES = 512 * 1024 * 1024
_MAGIC = b"COTLET1\n"
_MAXIMUM_HEADER_BYTES = 4096


class LetterError(Exception):
    """A letter that is not accepted."""


class CorruptLetter(LetterError):
    """Damaged, forged, or not a letter."""


class WrongRecipient(LetterError):
    """Sealed for another device."""


class Stranger(LetterError):
    """From a device that is not a peer of this round."""


class WrongRound(LetterError):
    """For another task, round, plan or purpose."""


class ReplayedLetter(LetterError):
    """From a sender whose letter of this round was already accepted."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a letter is about: one kind of message of one round under one plan."""

    task: str
    round: int
    plan_version: int
    kind: str


@dataclass(frozen=True, slots=True)
class Header:
    """Subject and parties of a letter, by device id."""

    subject: Subject
    sender: str
    recipient: str


@dataclass(frozen=True, slots=True)
class Letter:
    """An opened letter."""

    header: Header
    tensors: Tensors


@dataclass(slots=True)
class SeenLetters:
    """Remembers who has been heard on what; one letter per sender and subject is accepted, the first.

    It lives as long as the recipient's round: after a restart the letters of the open round are collected again, and
    those of older rounds fail the subject check.
    """

    _seen: set[tuple[Subject, str]] = field(default_factory=set)

    def accept(self, header: Header) -> None:
        """Remember the letter, or raise `ReplayedLetter`."""
        if (header.subject, header.sender) in self._seen:
            raise ReplayedLetter(
                f"{header.sender} already sent its {header.subject.kind} for round {header.subject.round}; "
                "the first letter counts"
            )
        self._seen.add((header.subject, header.sender))

    def forget_before(self, task: str, round: int) -> None:
        """Drop what belongs to earlier rounds of the task."""
        self._seen = {(about, sender) for about, sender in self._seen if about.task != task or about.round >= round}


def seal(
    header: Header,
    tensors: Mapping[str, NDArray[Any]],
    keys: DeviceKeys,
    recipient_key: bytes,
    *,
    padding_bytes: int = 1,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> bytes:
    """Seal tensors for one device.

    Args:
        header: who writes to whom about what.
        tensors: arrays by name, of any type safetensors knows.
        keys: the sender's.
        recipient_key: the recipient's sealing key, taken from its verified `PublicKeys`.
        padding_bytes: round the content up to a multiple of this, to blur what the size tells.
        maximum_bytes: refuse a larger letter with ValueError.
    """
    if padding_bytes < 1:
        raise ValueError(f"padding must be at least 1 byte, got {padding_bytes}")
    line = _encode(header)
    payload = save_tensors({name: _native(tensor) for name, tensor in tensors.items()})
    content = _prefixed(line) + len(payload).to_bytes(8, "big") + payload
    content += bytes(-len(content) % padding_bytes)
    letter = _MAGIC + _prefixed(line) + Box(PrivateKey(keys.sealing), PublicKey(recipient_key)).encrypt(content)
    if len(letter) > maximum_bytes:
        raise ValueError(f"a letter may have {maximum_bytes} bytes, this one has {len(letter)}; send a smaller model")
    return letter


def read_header(letter: bytes) -> Header:
    """The outer header, which is public and untrusted before `open_letter`."""
    return _split(letter)[0]


def open_letter(
    letter: bytes,
    keys: DeviceKeys,
    recipient: str,
    subject: Subject,
    peers: Mapping[str, bytes],
    seen: SeenLetters,
    *,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Letter:
    """Open a letter, or say by the type of error why it is not accepted.

    Args:
        letter: the bytes as received.
        keys: the recipient's.
        recipient: the recipient's device id.
        subject: what a letter must be about to be accepted now.
        peers: sealing keys of the devices that may write, by id.
        seen: the guard against repetition; only a letter that passes every other check is remembered.
        maximum_bytes: larger letters are corrupt.
    """
    if len(letter) > maximum_bytes:
        raise CorruptLetter(f"a letter may have {maximum_bytes} bytes, this one has {len(letter)}")
    header, sealed = _split(letter)
    if header.recipient != recipient:
        raise WrongRecipient(f"the letter is for {header.recipient}, not for {recipient}")
    if header.sender not in peers:
        raise Stranger(f"{header.sender} is not a peer of this round; its letter was not opened")
    content = _decrypt(sealed, keys, peers[header.sender])
    inner, rest = _take_header(content)
    if inner != header:
        raise CorruptLetter(f"the header inside the letter from {header.sender} differs from the one outside")
    if header.subject != subject:
        raise WrongRound(f"expected a letter about {subject}, got one about {header.subject}")
    tensors = _tensors(rest, header.sender)
    seen.accept(header)
    return Letter(header, tensors)


def _decrypt(sealed: bytes, keys: DeviceKeys, sender_key: bytes) -> bytes:
    for private in (keys.sealing, keys.previous_sealing):
        if private is not None:
            try:
                # As a Box does it, which would also derive the recipient's public key: a tenth of a clerk's work.
                shared = crypto_box_beforenm(sender_key, private)
                return crypto_box_open_afternm(sealed[crypto_box_NONCEBYTES:], sealed[:crypto_box_NONCEBYTES], shared)
            except (CryptoError, ValueError):
                continue
    raise CorruptLetter("the letter cannot be opened: it was changed, forged, or sealed for a key long replaced")


def _tensors(rest: bytes, sender: str) -> Tensors:
    length = int.from_bytes(rest[:8], "big")
    if len(rest) < 8 + length or any(rest[8 + length :]):
        raise CorruptLetter(f"the letter from {sender} has a payload of another length than it says")
    try:
        return load_tensors(rest[8 : 8 + length])
    except (SafetensorError, ValueError, KeyError) as error:
        raise CorruptLetter(f"the letter from {sender} holds no readable tensors ({error})") from error


def _native(tensor: NDArray[Any]) -> NDArray[Any]:
    # safetensors writes the bytes as they lie in memory and calls them little-endian and in C order.
    return np.asarray(tensor, dtype=tensor.dtype.newbyteorder("<"), order="C")


def _encode(header: Header) -> bytes:
    subject = {"task": header.subject.task, "round": header.subject.round}
    subject |= {"plan_version": header.subject.plan_version, "kind": header.subject.kind}
    fields = {"subject": subject, "sender": header.sender, "recipient": header.recipient}
    line = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    if len(line) > _MAXIMUM_HEADER_BYTES:
        raise ValueError(f"a header may have {_MAXIMUM_HEADER_BYTES} bytes, this one has {len(line)}; use shorter ids")
    return line


def _prefixed(line: bytes) -> bytes:
    return len(line).to_bytes(4, "big") + line


def _split(letter: bytes) -> tuple[Header, bytes]:
    if not letter.startswith(_MAGIC):
        raise CorruptLetter("these bytes are not a letter")
    return _take_header(letter[len(_MAGIC) :])


def _take_header(content: bytes) -> tuple[Header, bytes]:
    length = int.from_bytes(content[:4], "big")
    if length > _MAXIMUM_HEADER_BYTES or len(content) < 4 + length:
        raise CorruptLetter("the letter ends within its header")
    line = content[4 : 4 + length]
    try:
        fields = json.loads(line)
        header = Header(Subject(**fields["subject"]), fields["sender"], fields["recipient"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptLetter("the letter's header cannot be read") from error
    # One header has one spelling, so equal headers are equal bytes and wrong types do not pass.
    if not _well_typed(header) or _encode(header) != line:
        raise CorruptLetter("the letter's header is not in canonical form")
    return header, content[4 + length :]


def _well_typed(header: Header) -> bool:
    subject = header.subject
    texts = (subject.task, subject.kind, header.sender, header.recipient)
    numbers = (subject.round, subject.plan_version)
    return all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)
