"""API keys, enrolment tokens and proofs of possession.

A key reads `ck_<name>.<secret>` and a token `ct_<name>.<secret>`: the 26 characters of the name identify the row, the
secret has 256 random bits. Only the secret's SHA-256 is stored: a fast hash suffices because the secret cannot be
guessed, and authentication stays one indexed read.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from services.kit.runtime.ids import new_id
from services.trust.domain.records import KEY_BYTES

SIGNATURE_BYTES = 64
_FORM = re.compile(r"^(ck|ct)_([0-9a-z]{26})\.([A-Za-z0-9_-]{32,128})$")
_PREFIX = {"ck": "key", "ct": "tok"}


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret in plain text: `id` names its row, `text` is what the holder presents, `digest` is what is stored."""

    id: str
    text: str
    digest: bytes


def new_credential(sort: str) -> Credential:
    """Create an API key (`sort` "ck") or an enrolment token ("ct")."""
    identifier, secret = new_id(_PREFIX[sort]), secrets.token_urlsafe(32)
    return Credential(identifier, f"{sort}_{identifier.partition('_')[2]}.{secret}", _digest(secret))


def parse(sort: str, text: str) -> Credential | None:
    """Parse `text` as a credential of that sort; None if it is not one."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] != sort:
        return None
    return Credential(f"{_PREFIX[sort]}_{match[2]}", text, _digest(match[3]))


def matches(presented: Credential, digest: bytes) -> bool:
    """Whether the presented secret has the stored digest, in constant time."""
    return hmac.compare_digest(presented.digest, digest)


def proves(signing_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is valid for `message` under the Ed25519 key `signing_key`."""
    if len(signing_key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        VerifyKey(signing_key).verify(message, signature)
    except BadSignatureError:
        return False
    return True


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
