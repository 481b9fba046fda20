"""The letter that brings a clerk its seeds: a sealed letter like others, from a key made for this session alone.

The letter key's private half is never stored, and the clerk deletes its session key afterwards, so that the letter can
never be opened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey
from numpy.typing import NDArray

from coterie.protocol.keys import DeviceKeys
from coterie.protocol.letters import Header, LetterError, SeenLetters, Subject, Tensors, WrongRound, open_letter, seal
from coterie.secure_sums.acceptance import MOST_COMPANY, TermsRefused
from coterie.secure_sums.masks import SEED_BYTES, commitment, root
from coterie.secure_sums.terms import DIGEST_BYTES, Terms

FaultKind = Literal["stranger", "signature", "letter", "terms", "shape", "seed", "root", "company"]
PADDING_BYTES = 1024
MAXIMUM_BYTES = 16 * 1024
KIND = "seeds"


class Fault(Exception):
    """The reason why a clerk cannot serve a candidate."""

    def __init__(self, kind: FaultKind) -> None:
        super().__init__(kind)
        self.kind: FaultKind = kind


@dataclass(frozen=True, slots=True)
class LetterKey:
    """A key made for one session; only its public half ever leaves memory."""

    private: bytes

    @classmethod
    def generate(cls) -> LetterKey:
        """Make a random key."""
        return cls(bytes(PrivateKey.generate()))

    @property
    def public(self) -> bytes:
        """The key with which the clerks open the letters."""
        return bytes(PrivateKey(self.private).public_key)

    def __repr__(self) -> str:
        """Omits the key, so that no log line shows it."""
        return "LetterKey(…)"


@dataclass(frozen=True, slots=True, repr=False)
class Opened:
    """A device's seeds by share and the company it requires, as a clerk reads them. Never printed."""

    seeds: dict[int, bytes]
    company: frozenset[bytes]
    company_least: int


def subject_of(terms: Terms) -> Subject:
    """Return the subject of a sum's letters; a second session has the same subject and other terms inside."""
    return Subject(terms.task, terms.round, terms.plan_version, KIND)


def seal_seeds(
    terms: Terms,
    device: str,
    letter_key: LetterKey,
    seeds: Sequence[bytes],
    *,
    commitments: Sequence[bytes],
    company: Sequence[bytes],
    company_least: int,
) -> list[bytes]:
    """Seal one letter per clerk, by position, with the seeds of the shares it holds."""
    keys = DeviceKeys(signing=bytes(32), sealing=letter_key.private)  # a letter is sealed, not signed
    common: Tensors = {
        "terms": _bytes([terms.digest])[0],
        "commitments": _bytes(commitments),
        "company": _bytes(company),
        "company_least": np.array([company_least], dtype=np.int64),
    }
    letters = []
    for position, clerk in enumerate(terms.clerks):
        header = Header(subject_of(terms), device, clerk.device)
        tensors = {**common, "seeds": _bytes([seeds[share] for share in terms.held(position)])}
        try:
            letters.append(seal(header, tensors, keys, clerk.session_key, padding_bytes=PADDING_BYTES))
        except (CryptoError, ValueError) as error:  # a session key of small order
            raise TermsRefused(f"nothing can be sealed to the session key of clerk {clerk.device}") from error
    return letters


def open_seeds(
    letter: bytes,
    terms: Terms,
    position: int,
    session_key: bytes,
    *,
    device: str,
    letter_key: bytes,
    signed_root: bytes,
) -> Opened:
    """Open a candidate's letter; raise `Fault` if it is wrong.

    letter_key, signed_root: from the candidate's signed upload.
    """
    keys = DeviceKeys(signing=bytes(32), sealing=session_key)
    clerk = terms.clerks[position].device
    try:
        tensors = open_letter(
            letter,
            keys,
            clerk,
            subject_of(terms),
            peers={device: letter_key},
            seen=SeenLetters(),
            maximum_bytes=MAXIMUM_BYTES,
        ).tensors
    except WrongRound as error:
        raise Fault("terms") from error
    except LetterError as error:
        raise Fault("letter") from error
    held = terms.held(position)
    _check_shapes(tensors, len(held), terms.shares)
    if tensors["terms"].tobytes() != terms.digest:
        raise Fault("terms")
    commitments = [row.tobytes() for row in tensors["commitments"]]
    seeds = dict(zip(held, (row.tobytes() for row in tensors["seeds"]), strict=True))
    if any(commitment(terms.digest, device, share, seed) != commitments[share] for share, seed in seeds.items()):
        raise Fault("seed")
    if root(commitments) != signed_root:
        raise Fault("root")
    company = frozenset(row.tobytes() for row in tensors["company"])
    return Opened(seeds, company, int(tensors["company_least"][0]))


def _check_shapes(tensors: Tensors, held: int, shares: int) -> None:
    expected = {"terms": (DIGEST_BYTES,), "seeds": (held, SEED_BYTES), "commitments": (shares, DIGEST_BYTES)}
    if tensors.keys() != {*expected, "company", "company_least"}:
        raise Fault("shape")
    company, least = tensors["company"], tensors["company_least"]
    if any(tensors[name].shape != shape or tensors[name].dtype != np.uint8 for name, shape in expected.items()):
        raise Fault("shape")
    if (
        company.ndim != 2
        or company.shape[1] != DIGEST_BYTES
        or company.dtype != np.uint8
        or len(company) > MOST_COMPANY
    ):
        raise Fault("shape")
    if least.shape != (1,) or least.dtype != np.int64 or least[0] < 0:
        raise Fault("shape")


def _bytes(rows: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), DIGEST_BYTES)
