"""Masks that cancel: the holders of each seed, the commitment to a seed, and the words that a seed expands to.

Each of K = C(m, t−1) shares is withheld from one set of t−1 clerks, so any t clerks hold all of them and any t−1 miss
one. A device draws a seed for every share; its mask is the sum of the K streams of words. Clerks report, share by
share, the sum of the survivors' streams; subtracted from the sum of the masked words it leaves the sum of the values.

All sums are modulo 2^b, b the number of bits of a word, so nothing depends on order or grouping.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.secure_sums import chacha

Words = NDArray[np.unsignedinteger[Any]]

SEED_BYTES = 32
MOST_CLERKS, MOST_SHARES = 7, 35
_SEED_LABEL = b"coterie seed 1\n"
_MASK_LABEL = b"coterie mask 1\n"


def digest(*parts: bytes) -> bytes:
    """SHA-256 of the parts, joined."""
    return hashlib.sha256(b"".join(parts)).digest()


# --- shares -----------------------------------------------------------------------------------------------------------


def check_committee(clerks: int, threshold: int) -> None:
    """ValueError unless 2 ≤ t ≤ m ≤ 7 and C(m, t−1) ≤ 35."""
    if not 2 <= threshold <= clerks <= MOST_CLERKS or comb(clerks, threshold - 1) > MOST_SHARES:
        raise ValueError(
            f"a committee of {clerks} clerks of whom any {threshold} open a sum is not supported; "
            "take 4 and 2, 3 and 2, 5 and 3 or 7 and 3"
        )


def withheld_sets(clerks: int, threshold: int) -> list[tuple[int, ...]]:
    """Positions of the clerks from whom share k is withheld, for k = 0..K−1."""
    check_committee(clerks, threshold)
    return list(combinations(range(clerks), threshold - 1))


def held_shares(clerks: int, threshold: int, position: int) -> list[int]:
    """Shares the clerk at a position holds, ascending."""
    return [k for k, without in enumerate(withheld_sets(clerks, threshold)) if position not in without]


def commit_quorum(clerks: int, threshold: int) -> int:
    """q with 2q − m > t − 1: any two groups of q clerks share one that is honest if t − 1 are not."""
    check_committee(clerks, threshold)
    return (clerks + threshold - 1) // 2 + 1


# --- seeds ------------------------------------------------------------------------------------------------------------


def commitment(terms: bytes, device: str, share: int, seed: bytes) -> bytes:
    """c_k, which binds a seed to the terms, the device and the share."""
    return digest(_SEED_LABEL, terms, digest(device.encode()), share.to_bytes(4, "big"), seed)


def commitments(terms: bytes, device: str, seeds: Sequence[bytes]) -> list[bytes]:
    """c_0 … c_{K−1}."""
    return [commitment(terms, device, share, seed) for share, seed in enumerate(seeds)]


def root(commitments: Iterable[bytes]) -> bytes:
    """R, which names all the seeds at once."""
    return digest(*commitments)


# --- words ------------------------------------------------------------------------------------------------------------


def word_type(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Little-endian words of 32 or 64 bits."""
    if bits == 32:
        return np.dtype("<u4")
    if bits == 64:
        return np.dtype("<u8")
    raise ValueError(f"words have 32 or 64 bits, not {bits}")


def mask_key(terms: bytes, device: str, share: int, seed: bytes) -> bytes:
    """Derive the ChaCha20 key of a seed under these terms."""
    return digest(_MASK_LABEL, terms, digest(device.encode()), share.to_bytes(4, "big"), seed)


def mask_stream(terms: bytes, device: str, share: int, seed: bytes, elements: int, bits: int) -> Words:
    """The words of one share of one device."""
    kind = word_type(bits)
    return chacha.stream(mask_key(terms, device, share, seed), elements * kind.itemsize).view(kind)


def masked(values: NDArray[np.int64], terms: bytes, device: str, seeds: Sequence[bytes], bits: int) -> Words:
    """values + Σ_k stream_k modulo 2^b; the caller keeps values within ±2^(b−1)."""
    total = values.astype(word_type(bits))
    for share, seed in enumerate(seeds):
        total += mask_stream(terms, device, share, seed, elements=values.size, bits=bits)
    return total


def share_sum(terms: bytes, share: int, survivors: Iterable[tuple[str, bytes]], elements: int, bits: int) -> Words:
    """A_k = Σ stream over the survivors, given as (device, its seed of this share)."""
    total: Words = np.zeros(elements, word_type(bits))
    for device, seed in survivors:
        total += mask_stream(terms, device, share, seed, elements=elements, bits=bits)
    return total


def opened(masked_sum: Words, share_sums: Iterable[Words]) -> NDArray[np.int64]:
    """X = Σ masked − Σ_k A_k, read as two's complement."""
    total = masked_sum.copy()
    for words in share_sums:
        total -= words
    signed = total.view("<i4" if total.dtype.itemsize == 4 else "<i8")
    return signed.astype(np.int64)
