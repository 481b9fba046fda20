"""The owner's circle: what it keeps, and what it refuses to become."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from coterie.privacy.files import WidePermissions
from coterie.secure_sums.circle import BadCircle, Circle, Member, fingerprint_words, invitation, read_invitation

ADA, BOB = (Member(SigningKey(c * 32).verify_key.encode(), f"own_{name}") for c, name in ((b"a", "ada"), (b"b", "bob")))


def test_a_circle_is_read_as_it_was_saved_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    circle = Circle(
        {"dev_ada": ADA}, {"dev_bob": BOB}, "first-use", strangers=1, smallest_sum=10, company_least=3, count="company"
    )
    path = tmp_path / "circle.json"
    circle.save(path)
    assert Circle.load(path) == circle
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(WidePermissions):
        Circle.load(path)


def test_without_a_file_the_circle_is_empty_and_strict(tmp_path: Path) -> None:
    circle = Circle.load(tmp_path / "circle.json")
    assert (circle.members, circle.mode, circle.strangers, circle.secure_only) == ({}, "pinned", 0, False)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"members": {"dev_a": {"signing_key": "zz", "owner": "o"}}},
        {"members": {"dev_a": {}}},
        {"members": []},
        {"mode": "anything"},
        {"strangers": -1},
        {"strangers": True},
        {"smallest_sum": 2},
        {"company_least": 65},
        {"count": "hope"},
        {"secure_only": "no"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_circle_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "circle.json"
    Circle({"dev_ada": ADA}).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadCircle, match="not a circle"):
        Circle.load(path)


def test_damaged_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "circle.json"
    Circle().save(path)
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(BadCircle):
        Circle.load(path)


def test_members_come_and_go_but_never_change_their_key() -> None:
    circle = Circle().with_member("dev_ada", ADA.signing_key, ADA.owner)
    assert circle.with_member("dev_ada", ADA.signing_key, ADA.owner) == circle
    with pytest.raises(BadCircle, match="another key"):
        circle.with_member("dev_ada", BOB.signing_key, ADA.owner)
    assert circle.without("dev_ada") == Circle()
    with pytest.raises(BadCircle, match="not in the circle"):
        circle.without("dev_bob")
    with pytest.raises(BadCircle, match="32 bytes"):
        circle.with_member("dev_bob", b"short", "own_bob")


def test_a_clerk_seen_first_is_kept_unverified_until_it_is_added() -> None:
    circle = Circle({"dev_ada": ADA}).having_seen({"dev_ada": BOB, "dev_bob": BOB})
    assert circle.members == {"dev_ada": ADA}
    assert circle.seen == {"dev_bob": BOB}
    assert circle.having_seen({"dev_bob": ADA}).seen == {"dev_bob": BOB}
    verified = circle.with_member("dev_bob", BOB.signing_key, BOB.owner)
    assert (verified.seen, set(verified.members)) == ({}, {"dev_ada", "dev_bob"})


@given(st.binary(min_size=32, max_size=32))
def test_fingerprints_in_words_can_be_spoken_and_differ(key: bytes) -> None:
    words = fingerprint_words(key).split()
    assert len(words) == 8
    assert all(len(word) == 5 for word in words)
    assert words != fingerprint_words(bytes([key[0] ^ 1]) + key[1:]).split()


def test_the_words_of_a_fingerprint_are_its_bits() -> None:
    """SHA-256 of 32 zero bytes begins 66687aadf862bd77…; 0x6668 = 0110 01 1001 10 1000 → k i n o m."""
    assert fingerprint_words(bytes(32)).split()[0] == "kinom"


def test_an_invitation_brings_the_whole_key() -> None:
    text = invitation("dev_ada", ADA.signing_key, ADA.owner)
    assert read_invitation(text) == ("dev_ada", ADA)
    for bad in (
        "",
        "http://example.org",
        text[:-1],
        text.replace(ADA.signing_key.hex(), "6G" * 32),
        text.replace("device", "devise"),
    ):
        with pytest.raises(BadCircle, match="not an invitation"):
            read_invitation(bad)
