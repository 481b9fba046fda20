"""A device's keys: one signs for its identity, one opens letters sealed to it.

Both are in one JSON file of mode 0600, replaced atomically, so a crash never leaves half a key. The signing key is the
identity and never changes. It certifies the sealing key, which may be rotated; the previous sealing key stays to open
letters in transit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_scalarmult
from nacl.exceptions import BadSignatureError, CryptoError
from nacl.public import PrivateKey
from nacl.signing import SigningKey, VerifyKey

from coterie.privacy.files import refuse_wide_permissions, write_private_file

_FORMAT = "coterie-device-keys-1"
_CERTIFICATE = b"coterie sealing key 1:"
_KEY_BYTES = 32


class BadKeys(Exception):
    """A key file or a public key that cannot be used."""


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """What others need: ed25519 and x25519 public keys, and the first one's signature of the second."""

    signing: bytes
    sealing: bytes
    certificate: bytes

    def fingerprint(self) -> str:
        """SHA-256 of the identity, in groups of four to be read aloud; the same after a rotation."""
        digits = hashlib.sha256(self.signing).hexdigest()[:32]
        return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))

    def verify(self) -> None:
        """Raise `BadKeys` unless both keys are sound and the sealing key is certified by the signing key."""
        require_sound(self.signing, self.sealing)
        try:
            VerifyKey(self.signing).verify(_CERTIFICATE + self.sealing, self.certificate)
        except (BadSignatureError, ValueError) as error:
            raise BadKeys("the sealing key is not certified by this identity; ask the device for its keys again") from (
                error
            )

    def verify_signature(self, message: bytes, signature: bytes) -> None:
        """Raise `BadKeys` unless this identity signed the message."""
        try:
            VerifyKey(self.signing).verify(message, signature)
        except (BadSignatureError, ValueError) as error:
            raise BadKeys("the signature is not this device's; the message was changed or is not from it") from error


def require_sound(signing: bytes, sealing: bytes) -> None:
    """Raise `BadKeys` for keys that hide or prove nothing: points of small order, and malformed keys.

    The secret that two keys share is public when one of them is such a point, and a signature under such an identity
    fits messages that its owner never signed.
    """
    require_signing_key(signing)
    try:
        # Any scalar does: all are multiples of eight, which send points of small order, and only those, to zero.
        crypto_scalarmult(b"\x01" * _KEY_BYTES, sealing)
    except (CryptoError, ValueError, TypeError, RuntimeError) as error:
        raise BadKeys(
            "the sealing key is not an x25519 key, or one of small order that hides nothing; make new keys"
        ) from error


def require_signing_key(signing: bytes) -> None:
    """Raise `BadKeys` for a signing key that proves nothing."""
    if len(signing) != _KEY_BYTES or not crypto_core_ed25519_is_valid_point(signing):
        raise BadKeys(
            "the signing key is not an ed25519 key, or one of small order that anybody can sign for; make new keys"
        )


def sealed_to_identity(signing_key: bytes) -> bytes:
    """The x25519 key that letters to an identity are sealed to: its signing key on the other form of the same curve.

    The compared fingerprint vouches for this key; a sealing key would need the platform's word.
    """
    try:
        return bytes(VerifyKey(signing_key).to_curve25519_public_key())
    except (CryptoError, ValueError, TypeError, RuntimeError) as error:
        raise BadKeys("this is not a device's key; ask its owner for it again") from error


@dataclass(frozen=True, slots=True, repr=False)
class DeviceKeys:
    """Private keys as 32-byte seeds; `previous_sealing` opens letters sealed before the last rotation."""

    signing: bytes
    sealing: bytes
    previous_sealing: bytes | None = None

    def __post_init__(self) -> None:
        for key in (self.signing, self.sealing, self.previous_sealing):
            if key is not None and len(key) != _KEY_BYTES:
                raise BadKeys(f"a key has {_KEY_BYTES} bytes, got {len(key)}")

    def __repr__(self) -> str:
        """The fingerprint only, so that a log line or a traceback never shows a private key."""
        return f"DeviceKeys({self.public().fingerprint()})"

    @classmethod
    def generate(cls) -> DeviceKeys:
        """New random keys of both kinds."""
        return cls(bytes(SigningKey.generate()), bytes(PrivateKey.generate()))

    @classmethod
    def load(cls, path: Path) -> DeviceKeys:
        """Keys of a file that only its owner may read; raises `WidePermissions` or `BadKeys` with what to do."""
        refuse_wide_permissions(path)
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != _FORMAT:
                raise ValueError(f"unknown format {content['format']!r}")
            previous = content["previous_sealing"]
            return cls(
                bytes.fromhex(content["signing"]),
                bytes.fromhex(content["sealing"]),
                None if previous is None else bytes.fromhex(previous),
            )
        except (ValueError, KeyError, TypeError, BadKeys) as error:
            raise BadKeys(f"{path} is not a key file ({error}); restore it, or move it away and register again") from (
                error
            )

    @classmethod
    def load_or_create(cls, path: Path) -> DeviceKeys:
        """Keys of the file, made on the first call; two processes starting at once end with the same keys."""
        if not path.exists():
            try:
                fresh = cls.generate()
                write_private_file(path, fresh._encoded(), replace=False)
            except FileExistsError:
                return cls.load(path)
            return fresh
        return cls.load(path)

    def save(self, path: Path) -> None:
        """Write the file, replacing an older one."""
        write_private_file(path, self._encoded(), replace=True)

    def rotated(self) -> DeviceKeys:
        """The same identity with a new sealing key; the present one becomes the previous. Save, then publish."""
        return DeviceKeys(self.signing, bytes(PrivateKey.generate()), self.sealing)

    def public(self) -> PublicKeys:
        """The public halves, with the sealing key certified."""
        signing = SigningKey(self.signing)
        sealing = bytes(PrivateKey(self.sealing).public_key)
        return PublicKeys(bytes(signing.verify_key), sealing, signing.sign(_CERTIFICATE + sealing).signature)

    def as_identity(self) -> DeviceKeys:
        """Keys whose sealing half is the identity itself: for letters between devices that know each other's."""
        return DeviceKeys(self.signing, bytes(SigningKey(self.signing).to_curve25519_private_key()))

    def sign(self, message: bytes) -> bytes:
        """64-byte signature of the message by this identity."""
        return SigningKey(self.signing).sign(message).signature

    def _encoded(self) -> bytes:
        return json.dumps(
            {
                "format": _FORMAT,
                "signing": self.signing.hex(),
                "sealing": self.sealing.hex(),
                "previous_sealing": None if self.previous_sealing is None else self.previous_sealing.hex(),
            }
        ).encode()
