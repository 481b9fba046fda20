"""A masked update: one safetensors body with the masked words, the commitments and all letters, and one signature.

All letters travel inside, so a delivery is whole or absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from secrets import token_bytes
from typing import Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save as save_tensors

from coterie.learning.tensor_files import load as load_tensors
from coterie.privacy.discrete import Integers
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.letters import Tensors
from coterie.secure_sums import masks
from coterie.secure_sums.letters import MAXIMUM_BYTES, LetterKey, seal_seeds
from coterie.secure_sums.masks import SEED_BYTES, Words, digest
from coterie.secure_sums.terms import DIGEST_BYTES, KEY_BYTES, Terms, signed_by, upload_message

FORM: Literal["masked"] = "masked"
OVERHEAD_BYTES = 64 * 1024


class BadMaskedUpdate(Exception):
    """A masked update whose shapes, types, letters or signature are not those the terms ask for."""


@dataclass(frozen=True)
class Upload:
    """What travels, apart from the signature."""

    masked: Words
    commitments: tuple[bytes, ...]
    letter_key: bytes
    letters: tuple[bytes, ...]

    @cached_property
    def root(self) -> bytes:
        """R."""
        return masks.root(self.commitments)

    @cached_property
    def masked_digest(self) -> bytes:
        """H of the masked words."""
        return digest(self.masked.tobytes())

    def message(self, terms: Terms, device: str) -> bytes:
        """What the device signs."""
        return upload_message(terms.digest, device, self.masked_digest, self.root, self.letter_key)

    def tensors(self) -> Tensors:
        """What the file holds."""
        tensors: Tensors = {
            "masked": self.masked,
            "commitments": np.frombuffer(b"".join(self.commitments), np.uint8).reshape(-1, DIGEST_BYTES),
            "letter_key": np.frombuffer(self.letter_key, np.uint8),
        }
        letters = {f"letter.{at}": np.frombuffer(letter, np.uint8) for at, letter in enumerate(self.letters)}
        return {**tensors, **letters}

    def body(self) -> bytes:
        """The file."""
        return save_tensors(self.tensors())


def make_upload(
    values: Integers, terms: Terms, device: str, keys: DeviceKeys, company: list[bytes], company_least: int
) -> tuple[Upload, bytes]:
    """Masks the values under fresh seeds, seals these to the clerks, signs; keeps neither seeds nor letter key."""
    seeds = [token_bytes(SEED_BYTES) for _ in range(terms.shares)]
    letter_key = LetterKey.generate()
    commitments = masks.commitments(terms.digest, device, seeds)
    letters = seal_seeds(terms, device, letter_key, seeds, commitments, company, company_least)
    upload = Upload(
        masks.masked(values, terms.digest, device, seeds, terms.bits),
        tuple(commitments),
        letter_key.public,
        tuple(letters),
    )
    return upload, keys.sign(upload.message(terms, device))


def most_bytes(terms: Terms) -> int:
    """Largest body taken."""
    return terms.elements * terms.bits // 8 + OVERHEAD_BYTES


def read_upload(body: bytes, terms: Terms) -> Upload:
    """The upload in a body; `BadMaskedUpdate` unless it has exactly the tensors the terms ask for."""
    if len(body) > most_bytes(terms):
        raise BadMaskedUpdate(
            f"a masked update of these terms has at most {most_bytes(terms)} bytes, this one {len(body)}"
        )
    try:
        tensors = load_tensors(body)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise BadMaskedUpdate("a masked update is a safetensors file; this one cannot be read") from error
    letters = [f"letter.{at}" for at in range(len(terms.clerks))]
    if tensors.keys() != {"masked", "commitments", "letter_key", *letters}:
        raise BadMaskedUpdate(f"a masked update holds masked, commitments, letter_key and {len(letters)} letters")
    _check(tensors, "masked", masks.word_type(terms.bits), (terms.elements,))
    _check(tensors, "commitments", np.dtype(np.uint8), (terms.shares, DIGEST_BYTES))
    _check(tensors, "letter_key", np.dtype(np.uint8), (KEY_BYTES,))
    for name in letters:
        _check(tensors, name, np.dtype(np.uint8), (min(len(tensors[name].ravel()), MAXIMUM_BYTES),))
    return Upload(
        tensors["masked"],
        tuple(row.tobytes() for row in tensors["commitments"]),
        tensors["letter_key"].tobytes(),
        tuple(tensors[name].tobytes() for name in letters),
    )


def check_signature(upload: Upload, terms: Terms, device: str, signing_key: bytes, signature: bytes) -> None:
    """`BadMaskedUpdate` unless the device signed this upload under these terms."""
    if not signed_by(signing_key, upload.message(terms, device), signature):
        raise BadMaskedUpdate("the masked update is not signed by this device under these terms")


def _check(tensors: Tensors, name: str, kind: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    if tensors[name].dtype != kind or tensors[name].shape != shape:
        raise BadMaskedUpdate(f"tensor {name!r} must be {kind.name} of shape {list(shape)}")
