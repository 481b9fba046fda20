"""Where the noise of a device comes from: a cryptographic stream that nobody can draw again.

Noise that can be drawn again can be subtracted, and a statistical generator's state can be worked out from what it
gave. So words come from ChaCha20 under 32 fresh bytes of the operating system. `FreshStream` has no parameter to seed
it by; a simulation that wants the same noise twice takes another type, `coterie.privacy.simulation.SeededStream`,
which no part of a device imports.
"""

from __future__ import annotations

import os
from typing import final

import numpy as np
from numpy.typing import NDArray

from coterie.secure_sums import chacha

_CHUNK_WORDS = 1 << 17


class Stream:
    """Uniform 64-bit words, none given twice. Not for use by several threads at once."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._chunks = 0
        self._left: NDArray[np.uint64] = np.empty(0, np.uint64)

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words."""
        if count < 0:
            raise ValueError(f"a stream gives 0 or more words, asked for {count}")
        if count > len(self._left):
            missing = max(count - len(self._left), min(_CHUNK_WORDS, 4 * count))
            self._left = np.concatenate([self._left, self._chunk(missing)])
        given, self._left = self._left[:count], self._left[count:]
        return given

    def _chunk(self, words: int) -> NDArray[np.uint64]:
        # Every chunk has a nonce of its own: no word is made twice, and both libraries can go on from any place.
        nonce = self._chunks.to_bytes(chacha.NONCE_BYTES, "little")
        self._chunks += 1
        return chacha.stream(self._key, 8 * words, nonce).view("<u8").astype(np.uint64, copy=False)


@final
class FreshStream(Stream):
    """Words under a key drawn from the operating system; make one for every release."""

    def __init__(self) -> None:
        super().__init__(os.urandom(chacha.KEY_BYTES))
