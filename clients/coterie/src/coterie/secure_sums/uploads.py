"""A masked update: one safetensors body with the masked words, the commitments and all letters, and one signature.

All letters travel inside, so a delivery is whole or absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from secrets import token_bytes
from typing import Literal

import numpy as np
from safetensors.numpy import save as save_tensors

from coterie.privacy.discrete import Integers
from coterie.protocol.keys import DeviceKeys
from coterie.protocol.letters import Tensors
from coterie.secure_sums import masks
from coterie.secure_sums.letters import LetterKey, seal_seeds
from coterie.secure_sums.masks import SEED_BYTES, Words, digest
from coterie.secure_sums.terms import DIGEST_BYTES, Terms, upload_message

FORM: Literal["masked"] = "masked"
OVERHEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Upload:
    """The body of a delivery."""

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
        """The message that the device signs."""
        return upload_message(terms.digest, device, self.masked_digest, self.root, self.letter_key)

    def tensors(self) -> Tensors:
        """The tensors of the file."""
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
    """Mask the values under fresh seeds, seal the seeds to the clerks, and sign; store neither seeds nor letter key."""
    seeds = [token_bytes(SEED_BYTES) for _ in range(terms.shares)]
    letter_key = LetterKey.generate()
    commitments = masks.commitments(terms.digest, device, seeds)
    letters = seal_seeds(
        terms, device, letter_key, seeds, commitments=commitments, company=company, company_least=company_least
    )
    upload = Upload(
        masks.masked(values, terms.digest, device, seeds, terms.bits),
        tuple(commitments),
        letter_key.public,
        tuple(letters),
    )
    return upload, keys.sign(upload.message(terms, device))


def most_bytes(terms: Terms) -> int:
    """Size limit of a body, in bytes."""
    return terms.elements * terms.bits // 8 + OVERHEAD_BYTES
