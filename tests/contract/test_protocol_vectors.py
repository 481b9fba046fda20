"""The vectors of docs/reference/protocol.md: what the SDK makes of fixed keys, byte for byte, and what it refuses.

`python -m tests.contract.test_protocol_vectors` rewrites the file; the test fails when the SDK no longer agrees.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacl.bindings import crypto_box_afternm, crypto_box_beforenm
from safetensors.numpy import load, save

from coterie.agent.registration import registration_body
from coterie.agent.report import Delivery, MemberReport
from coterie.privacy.accounting import gaussian_charge, raw_charge
from coterie.protocol import keys, letters
from coterie.protocol.keys import BadKeys, DeviceKeys, require_sound, sealed_to_identity
from coterie.protocol.letters import Header, SeenLetters, Subject
from coterie.secure_sums.circle import fingerprint_words, invitation
from services.trust.domain import checks
from services.trust.errors import InvalidField

FILE = Path(__file__).parents[2] / "docs" / "reference" / "protocol-vectors.json"
ADA = DeviceKeys(hashlib.sha256(b"ada signs").digest(), hashlib.sha256(b"ada seals").digest())
BOB = DeviceKeys(hashlib.sha256(b"bob signs").digest(), hashlib.sha256(b"bob seals").digest())
HEADER = Header(Subject("tsk_1", 2, 3, "update"), "dev_ada", "dev_böb")
NONCE = bytes(range(24))
BEFORE = {"bias": np.array([0.5, -0.5], np.float32), "weight": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}
AFTER = {"bias": np.array([0.75, -0.5], np.float32), "weight": np.array([[1.0, 1.5], [3.25, 4.0]], np.float32)}
# Points of order 1, 2, 4 and 8 in both spellings of a coordinate where the field allows two (RFC 7748, section 5: the
# last bit of an X25519 key is masked).
P = 2**255 - 19
ORDER_EIGHT = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
SMALL_SEALING = [0, 1, *ORDER_EIGHT, P - 1, P, P + 1]


def made() -> dict[str, Any]:
    """All vectors, computed now."""
    change = {name: AFTER[name] - BEFORE[name] for name in BEFORE}
    return {
        "about": "vectors of docs/reference/protocol.md; bytes are hexadecimal unless a name says base64",
        "devices": {name: _device(name, item) for name, item in (("ada", ADA), ("bob", BOB))},
        "small_order": {
            "sealing_keys": [value.to_bytes(32, "little").hex() for value in SMALL_SEALING],
            "signing_keys": [key.hex() for key in _small_signing()],
        },
        "letters": [_letter("sealing keys", ADA, BOB), _letter("identities", ADA.as_identity(), BOB.as_identity())],
        "update": {
            "model": save(BEFORE).hex(),
            "model_digest": hashlib.sha256(save(BEFORE)).hexdigest(),
            "trained": {name: value.tolist() for name, value in AFTER.items()},
            "change": {name: value.tolist() for name, value in change.items()},
            "body": save(change).hex(),
            "digest": hashlib.sha256(save(change)).hexdigest(),
        },
        "reports": [
            Delivery(change, 150.0, metrics={"loss": 0.25}, privacy=(raw_charge("tsk_1", 2, "update"),)).report(),
            Delivery(change, 150.0, privacy=(gaussian_charge("tsk_1", 2, "update", "device", 4.0),)).report(),
            Delivery(None, 1.5, form="report").report(),
            Delivery(change, 4.0, form="sum", members=(MemberReport("dev_ada", "delivered", weight=1.5),)).report(),
        ],
    }


def _device(name: str, own: DeviceKeys) -> dict[str, Any]:
    public = own.public()
    return {
        "signing_seed": own.signing.hex(),
        "signing_key": public.signing.hex(),
        "sealing_private": own.sealing.hex(),
        "sealing_key": public.sealing.hex(),
        "proof": own.sign(public.sealing).hex(),
        "registration": registration_body(own, "ct_token", name, {}),
        "fingerprint": public.fingerprint(),
        "fingerprint_words": fingerprint_words(public.signing),
        "invitation": invitation(f"dev_{name}", public.signing, f"own_{name}"),
        "identity_private_x25519": own.as_identity().sealing.hex(),
        "identity_x25519": sealed_to_identity(public.signing).hex(),
    }


def _letter(between: str, sender: DeviceKeys, recipient: DeviceKeys) -> dict[str, Any]:
    line = letters._encode(HEADER)
    payload = save(BEFORE)
    content = len(line).to_bytes(4, "big") + line + len(payload).to_bytes(8, "big") + payload
    content += bytes(-len(content) % 64)
    theirs = recipient.public().sealing
    shared = crypto_box_beforenm(theirs, sender.sealing)
    box = crypto_box_afternm(content, NONCE, shared)
    letter = b"COTLET1\n" + len(line).to_bytes(4, "big") + line + NONCE + box
    return {
        "between": between,
        "sender_private": sender.sealing.hex(),
        "recipient_private": recipient.sealing.hex(),
        "recipient_key": theirs.hex(),
        "shared_key": shared.hex(),
        "nonce": NONCE.hex(),
        "header": line.decode(),
        "content": content.hex(),
        "letter": letter.hex(),
        "digest": hashlib.sha256(letter).hexdigest(),
    }


def _small_signing() -> list[bytes]:
    """The eight points of small order as Ed25519 keys, from the curve −x² + y² = 1 + d x² y² and not from a list.

    Order 1 and 2 have y = ±1, order 4 has y = 0. A point of order 8 doubles to y = 0, hence x² = −y², and the curve
    becomes d y⁴ + 2 y² − 1 = 0.
    """
    d = -121665 * pow(121666, -1, P) % P
    root = _square_root(4 + 4 * d)
    assert root is not None
    fourths = [_square_root((-2 + sign * root) * pow(2 * d, -1, P)) for sign in (1, -1)]
    result = set()
    for y in [1, P - 1, 0, *(item for root8 in fourths if root8 is not None for item in (root8, P - root8))]:
        x = _square_root((y * y - 1) * pow(d * y * y + 1, -1, P))
        assert x is not None
        result |= {(y | (item & 1) << 255).to_bytes(32, "little") for item in (x, (P - x) % P)}
    return sorted(result)


def _square_root(square: int) -> int | None:
    square %= P
    root = pow(square, (P + 3) // 8, P)
    if root * root % P != square:
        root = root * pow(2, (P - 1) // 4, P) % P
    return root if root * root % P == square else None


def test_the_sdk_makes_the_published_bytes() -> None:
    assert json.loads(FILE.read_text()) == made(), "python -m tests.contract.test_protocol_vectors rewrites them"


def test_the_published_letters_open_and_hold_the_published_tensors() -> None:
    published = json.loads(FILE.read_text())["letters"]
    assert len(published) == 2
    for vector in published:
        recipient = DeviceKeys(BOB.signing, bytes.fromhex(vector["recipient_private"]))
        sender = DeviceKeys(ADA.signing, bytes.fromhex(vector["sender_private"])).public().sealing
        opened = letters.open_letter(
            bytes.fromhex(vector["letter"]), recipient, "dev_böb", HEADER.subject, {"dev_ada": sender}, SeenLetters()
        )
        assert opened.header == HEADER
        assert all(np.array_equal(opened.tensors[name], BEFORE[name]) for name in BEFORE)


def test_an_update_is_the_change_and_not_the_model() -> None:
    update = json.loads(FILE.read_text())["update"]
    model, change = load(bytes.fromhex(update["model"])), load(bytes.fromhex(update["body"]))
    for name, trained in update["trained"].items():
        assert np.array_equal(model[name] + change[name], np.array(trained, np.float32))


def test_small_order_keys_are_refused_by_devices_and_the_platform() -> None:
    small = json.loads(FILE.read_text())["small_order"]
    assert len(small["signing_keys"]) == 8
    assert len(small["sealing_keys"]) == 7
    sound = ADA.public()
    for text in small["signing_keys"]:
        with pytest.raises(BadKeys, match="small order"):
            require_sound(bytes.fromhex(text), sound.sealing)
        with pytest.raises(InvalidField):
            checks.require_keys(bytes.fromhex(text), sound.sealing)
    for text in small["sealing_keys"]:
        with pytest.raises(BadKeys, match="small order"):
            require_sound(sound.signing, bytes.fromhex(text))
        with pytest.raises(InvalidField):
            checks.require_keys(sound.signing, bytes.fromhex(text))


def test_the_published_proof_is_of_the_raw_sealing_key() -> None:
    for device in json.loads(FILE.read_text())["devices"].values():
        body = device["registration"]
        public = keys.PublicKeys(base64.b64decode(body["signing_key"]), base64.b64decode(body["sealing_key"]), b"")
        public.verify_signature(public.sealing, base64.b64decode(body["proof"]))


if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=1) + "\n")
