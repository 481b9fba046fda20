"""The source of a device's noise: a cryptographic stream that cannot be reproduced.

Reproducible noise can be subtracted, and the state of a statistical generator can be computed from its output. So words
come from ChaCha20 under 32 fresh bytes of the operating system. `FreshStream` has no seed parameter; a simulation that
needs the same noise twice uses `coterie.privacy.simulation.SeededStream`, which no part of a device imports.
"""

from __future__ import annotations

import os
from typing import final

import numpy as np
from numpy.typing import NDArray

from coterie.secure_sums import chacha

_CHUNK_WORDS = 1 << 17


class Stream:
    """Uniform 64-bit words without repetition. Not thread-safe."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._chunks = 0
        self._left: NDArray[np.uint64] = np.empty(0, np.uint64)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words."""
        if count < 0:
            raise ValueError(f"a stream yields 0 or more words, got a request for {count}")
        if count > len(self._left):
            missing = max(count - len(self._left), min(_CHUNK_WORDS, 4 * count))
            self._left = np.concatenate([self._left, self._chunk(missing)])
        given, self._left = self._left[:count], self._left[count:]
        return given

    def _chunk(self, words: int) -> NDArray[np.uint64]:
        # Every chunk has a separate nonce, so no word repeats and both libraries can continue from any chunk.
        nonce = self._chunks.to_bytes(chacha.NONCE_BYTES, "little")
        self._chunks += 1
        return chacha.stream(self._key, 8 * words, nonce).view("<u8").astype(np.uint64, copy=False)


@final
class FreshStream(Stream):
    """Words under a key drawn from the operating system; make one for every release."""

    def __init__(self) -> None:
        super().__init__(os.urandom(chacha.KEY_BYTES))
