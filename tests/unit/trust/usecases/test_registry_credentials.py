"""API keys, tokens and proofs of possession."""

from __future__ import annotations

import hashlib

import pytest
from nacl.signing import SigningKey

from services.trust.usecases.credentials import matches, new_credential, parse, proves


@pytest.mark.parametrize(("sort", "prefix"), [("ck", "key_"), ("ct", "tok_")])
def test_a_credential_is_found_again_by_what_its_holder_presents(sort: str, prefix: str) -> None:
    made = new_credential(sort)
    assert made.id.startswith(prefix)
    assert made.text.startswith(f"{sort}_{made.id[4:]}.")
    assert parse(sort, made.text) == made
    assert made.digest == hashlib.sha256(made.text.partition(".")[2].encode()).digest()
    assert made.text.partition(".")[2].encode() not in made.digest


def test_one_wrong_character_does_not_match() -> None:
    made = new_credential("ck")
    wrong = parse("ck", made.text[:-1] + ("a" if made.text[-1] != "a" else "b"))
    assert wrong is not None
    assert wrong.id == made.id
    assert not matches(wrong, made.digest)
    assert matches(made, made.digest)


@pytest.mark.parametrize(
    "text", ["", "ck_", "ck_short.secret", "CK_" + "0" * 26 + "." + "a" * 43, "ck_" + "0" * 26 + "." + "a" * 43 + "\n"]
)
def test_what_is_not_a_key_is_not_parsed(text: str) -> None:
    assert parse("ck", text) is None


def test_a_token_is_no_key() -> None:
    assert parse("ck", new_credential("ct").text) is None


def test_a_proof_holds_for_its_message_and_key_only() -> None:
    own, other = SigningKey.generate(), SigningKey.generate()
    signature = own.sign(b"sealing key").signature
    assert proves(bytes(own.verify_key), b"sealing key", signature)
    assert not proves(bytes(own.verify_key), b"another", signature)
    assert not proves(bytes(other.verify_key), b"sealing key", signature)
    assert not proves(b"", b"sealing key", signature)
    assert not proves(bytes(own.verify_key), b"sealing key", b"short")
    assert not proves(bytes(32), b"sealing key", bytes(64))
