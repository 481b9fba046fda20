"""The lists that platform and clerks exchange (candidates, survivors, letters), and the check of required company."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from coterie.secure_sums import canonical
from coterie.secure_sums.canonical import NotCanonical
from coterie.secure_sums.letters import MAXIMUM_BYTES, Opened
from coterie.secure_sums.masks import digest
from coterie.secure_sums.terms import DIGEST_BYTES, KEY_BYTES, SIGNATURE_BYTES, BadTerms

Survivors = Sequence[tuple[str, bytes]]
"""Survivors by id, each with its root."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A delivery as a clerk sees it: what the device signed, and its signature."""

    device: str
    masked_digest: bytes
    root: bytes
    letter_key: bytes
    signature: bytes


def candidates_text(candidates: Iterable[Candidate]) -> str:
    """The canonical list of candidates, by id."""
    ordered = sorted(candidates, key=lambda item: item.device.encode())
    return canonical.encode(
        [
            [item.device, item.masked_digest.hex(), item.root.hex(), item.letter_key.hex(), item.signature.hex()]
            for item in ordered
        ]
    )


def read_candidates(text: str) -> list[Candidate]:
    """Parse a canonical list of candidates; `BadTerms` if it is not one."""
    lengths = (DIGEST_BYTES, DIGEST_BYTES, KEY_BYTES, SIGNATURE_BYTES)
    try:
        return [
            Candidate(
                row[0],
                *(
                    canonical.hexadecimal(value, size, "a candidate")
                    for value, size in zip(row[1:], lengths, strict=True)
                ),
            )
            for row in canonical.rows(canonical.decode(text), (str,) * 5, "candidates")
        ]
    except NotCanonical as error:
        raise BadTerms(str(error)) from error


def survivors_text(survivors: Survivors) -> str:
    """The canonical list of survivors, which the caller sorts by id."""
    return canonical.encode([[device, root.hex()] for device, root in survivors])


def read_survivors(text: str) -> list[tuple[str, bytes]]:
    """Parse a canonical list of survivors; `BadTerms` unless it is sorted by id without duplicates."""
    try:
        return [
            (device, canonical.hexadecimal(root, DIGEST_BYTES, "a survivor's root"))
            for device, root in canonical.rows(canonical.decode(text), (str, str), "survivors")
        ]
    except NotCanonical as error:
        raise BadTerms(str(error)) from error


def list_digest(text: str) -> str:
    """Hexadecimal SHA-256 of a canonical list."""
    return digest(text.encode()).hex()


# --- letters on their way to a clerk ----------------------------------------------------------------------------------


def framed(device: str, letter: bytes) -> bytes:
    """One letter of a stream: BE16 length, id, BE32 length, letter."""
    name = device.encode()
    return len(name).to_bytes(2, "big") + name + len(letter).to_bytes(4, "big") + letter


def read_framed(stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield device and letter in turn; `BadTerms` if the stream is cut short or a letter is too long."""
    while head := stream.read(2):
        name = _exactly(stream, int.from_bytes(head, "big")) if len(head) == 2 else b""
        size = int.from_bytes(_exactly(stream, 4), "big")
        if not name or size > MAXIMUM_BYTES:
            raise BadTerms("the stream of letters is damaged; request it again")
        yield name.decode("ascii", errors="replace"), _exactly(stream, size)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    read = stream.read(count)
    if len(read) != count:
        raise BadTerms("the stream of letters is cut short; request it again")
    return read


# --- company ----------------------------------------------------------------------------------------------------------


def lonely(opened: Mapping[str, Opened], key_digests: Mapping[str, bytes], among: Iterable[str]) -> set[str]:
    """Return the devices of `among` with less company (different keys) among the others than they require."""
    people = list(among)
    holders: dict[bytes, int] = {}
    for device in people:
        holders[key_digests[device]] = holders.get(key_digests[device], 0) + 1
    without = set()
    for device in people:
        letter, own = opened[device], key_digests[device]
        here = sum(1 for key in letter.company if holders.get(key, 0) > (key == own))
        if here < letter.company_least:
            without.add(device)
    return without


def in_company(opened: Mapping[str, Opened], key_digests: Mapping[str, bytes]) -> set[str]:
    """Return the largest set in which each device has the company it requires."""
    left = set(opened)
    while dropped := lonely(opened, key_digests, left):
        left -= dropped
    return left
