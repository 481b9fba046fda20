"""ChaCha20 (RFC 8439) as a source of words, by whichever library is installed.

`cryptography` (OpenSSL) is three to five times faster; `pynacl`, which every device has, gives the same bytes: its
authenticated encryption enciphers the message with the stream from block 1, so zeros in give the stream out.
"""

from __future__ import annotations

import numpy as np
from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_ABYTES,
    crypto_aead_chacha20poly1305_ietf_encrypt,
)
from numpy.typing import NDArray

try:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
except ImportError:  # a thin device
    HAS_OPENSSL = False
else:
    HAS_OPENSSL = True

KEY_BYTES = 32
NONCE_BYTES = 12
_FIRST_BLOCK = (1).to_bytes(4, "little")
_MOST_BYTES = 64 * ((1 << 32) - 2)
"""Per key and nonce: the block counter has 32 bits."""


def stream(key: bytes, length: int, nonce: bytes = bytes(NONCE_BYTES)) -> NDArray[np.uint8]:
    """Return the first `length` bytes of the stream, block counter from 1; both libraries give the same bytes."""
    if len(key) != KEY_BYTES or len(nonce) != NONCE_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes and a nonce {NONCE_BYTES}, got {len(key)} and {len(nonce)}")
    if not 0 <= length <= _MOST_BYTES:
        raise ValueError(f"a stream has 0 to {_MOST_BYTES} bytes, got a request for {length}")
    return openssl_stream(key, length, nonce) if HAS_OPENSSL else sodium_stream(key, length, nonce)


def openssl_stream(key: bytes, length: int, nonce: bytes) -> NDArray[np.uint8]:
    """By `cryptography`."""
    out = np.zeros(length, np.uint8)
    if length:
        # Enciphering zeros in place saves a second array.
        Cipher(ChaCha20(key, _FIRST_BLOCK + nonce), mode=None).encryptor().update_into(out.data, out.data)
    return out


def sodium_stream(key: bytes, length: int, nonce: bytes) -> NDArray[np.uint8]:
    """By `pynacl`; the authentication tag at the end is cut off."""
    sealed = crypto_aead_chacha20poly1305_ietf_encrypt(bytes(length), None, nonce, key)
    return np.frombuffer(sealed, np.uint8, len(sealed) - crypto_aead_chacha20poly1305_ietf_ABYTES)
