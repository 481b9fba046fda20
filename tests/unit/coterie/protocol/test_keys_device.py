"""Device keys on disk: private, whole, certified, rotated."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coterie.privacy.files import WidePermissions
from coterie.protocol.keys import BadKeys, DeviceKeys, PublicKeys


def test_keys_are_made_once_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "device" / "keys.json"
    keys = DeviceKeys.load_or_create(path)
    assert DeviceKeys.load_or_create(path) == keys == DeviceKeys.load(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["keys.json"]


def test_many_starting_at_once_end_with_the_same_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with ThreadPoolExecutor(8) as pool:
        fingerprints = set(pool.map(lambda _: DeviceKeys.load_or_create(path).public().fingerprint(), range(16)))
    assert len(fingerprints) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_others_may_touch_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys.json"
    DeviceKeys.generate().save(path)
    path.chmod(mode)
    with pytest.raises(WidePermissions, match=rf"mode {mode:04o}.*chmod 600 {path}"):
        DeviceKeys.load(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"format": "other"}', b'{"format":"coterie-device-keys-1","signing":"zz"}'],
)
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(BadKeys, match="is not a key file"):
        DeviceKeys.load(path)


def test_a_key_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    DeviceKeys.generate().save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sealing": "00ff"}))
    with pytest.raises(BadKeys, match="32 bytes, got 2"):
        DeviceKeys.load(path)


def test_saving_replaces_and_leaves_no_drafts(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    DeviceKeys.generate().save(path)
    second = DeviceKeys.generate()
    second.save(path)
    assert DeviceKeys.load(path) == second
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.json"]


def test_rotation_keeps_the_identity_and_the_key_before(tmp_path: Path) -> None:
    keys = DeviceKeys.generate()
    rotated = keys.rotated()
    assert rotated.public().fingerprint() == keys.public().fingerprint()
    assert rotated.public().sealing != keys.public().sealing
    assert rotated.previous_sealing == keys.sealing
    rotated.public().verify()
    rotated.save(tmp_path / "keys.json")
    assert DeviceKeys.load(tmp_path / "keys.json") == rotated


def test_a_sealing_key_slipped_in_by_somebody_else_is_not_certified() -> None:
    honest, thief = DeviceKeys.generate().public(), DeviceKeys.generate().public()
    honest.verify()
    with pytest.raises(BadKeys, match="not certified"):
        PublicKeys(honest.signing, thief.sealing, thief.certificate).verify()
    with pytest.raises(BadKeys, match="not certified"):
        PublicKeys(honest.signing, honest.sealing, b"short").verify()


def test_signatures_are_bound_to_message_and_device() -> None:
    keys, other = DeviceKeys.generate(), DeviceKeys.generate()
    signature = keys.sign(b"hello")
    keys.public().verify_signature(b"hello", signature)
    for public, message in ((keys.public(), b"hullo"), (other.public(), b"hello")):
        with pytest.raises(BadKeys, match="not this device's"):
            public.verify_signature(message, signature)


def test_private_keys_do_not_show_in_logs() -> None:
    keys = DeviceKeys.generate()
    shown = f"{keys!r} {keys}"
    assert keys.public().fingerprint() in shown
    assert keys.signing.hex() not in shown
    assert repr(keys.signing) not in shown
