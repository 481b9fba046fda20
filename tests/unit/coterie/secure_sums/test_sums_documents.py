"""Canonical documents, terms and rolls: one spelling each, and nothing else is acted on."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.secure_sums import canonical
from coterie.secure_sums.canonical import NotCanonical
from coterie.secure_sums.protocol_lists import (
    Candidate,
    candidates_text,
    framed,
    read_candidates,
    read_framed,
    read_survivors,
    survivors_text,
)
from coterie.secure_sums.terms import BadTerms, Participants, Terms, signed_by
from tests.attacks.sum_fixture import SumFixture, keys_of

TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters='"\\'), max_size=8)
DOCUMENTS = st.recursive(
    st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


@given(DOCUMENTS)
def test_a_document_and_its_spelling_are_one(document: Any) -> None:
    text = canonical.encode(document)
    assert canonical.decode(text) == document
    assert " " not in text or " " in json.dumps(document, separators=(",", ":"))


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"b":1,"a":1}',
        '{"a": 1}',
        '{"a":1}\n',
        '{"a":1.0}',
        '{"a":true}',
        '{"a":null}',
        '{"a":"é"}',
        '{"a":"\\u0041"}',
        '{"a":"tab\\t"}',
        '{"a":01}',
        '{"a":-0}',
        '{"a":1e3}',
        '["a\\"b"]',
        "NaN",
        "",
        "[" * 100_000,
        '{"a":' + "9" * 5_000 + "}",
    ],
)
def test_any_other_spelling_is_refused(text: str) -> None:
    with pytest.raises(NotCanonical):
        canonical.decode(text)


def test_a_document_beyond_all_measure_is_refused_unread() -> None:
    with pytest.raises(NotCanonical, match="at most"):
        canonical.decode("[" + "1," * canonical.MOST_CHARACTERS + "1]")


# --- terms ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def terms(tmp_path: Path) -> Terms:
    return SumFixture(tmp_path).terms()


def changed(terms: Terms, **fields: Any) -> str:
    return canonical.encode({**json.loads(terms.text), **fields})


def test_terms_are_read_as_they_were_written(terms: Terms) -> None:
    assert Terms.read(terms.text) == terms
    assert Terms.read(terms.text).digest == terms.digest


@pytest.mark.parametrize(
    "fields",
    [
        {"format": "coterie-sum-2"},
        {"extra": 1},
        {"round": 0},
        {"sitting": 0},
        {"cohort": -1},
        {"round": "1"},
        {"bits": 16},
        {"elements": 0},
        {"elements": 2**40},
        {"scale": 5_000},
        {"least": 2, "honest": 1},
        {"least": 9},
        {"honest": 0},
        {"honest": 4},
        {"quorum": 2},
        {"threshold": 1},
        {"threshold": 3},
        {"clip_norm": "nan"},
        {"clip_norm": "-1.0"},
        {"clip_norm": "1_0.0"},
        {"clip_norm": " 1.0"},
        {"noise_multiplier": "inf"},
        {"noise_multiplier": "1e999"},
        {"heaviest": ""},
        {"model": "AB" * 32},
        {"participants": "ab"},
        {"clerks": []},
        {"clerks": [1, 2, 3, 4]},
    ],
    ids=str,
)
def test_terms_that_make_no_sense_are_refused(terms: Terms, fields: dict[str, Any]) -> None:
    with pytest.raises(BadTerms):
        Terms.read(changed(terms, **fields))


@pytest.mark.parametrize("name", ["device", "owner", "signing_key", "session_key"])
def test_two_clerks_with_one_identity_are_refused(terms: Terms, name: str) -> None:
    clerks = json.loads(terms.text)["clerks"]
    clerks[2][name] = clerks[0][name]
    with pytest.raises(BadTerms, match="two clerks"):
        Terms.read(changed(terms, clerks=clerks))


def test_terms_lacking_a_key_are_refused(terms: Terms) -> None:
    document = json.loads(terms.text)
    for name in document:
        with pytest.raises(BadTerms):
            Terms.read(canonical.encode({key: value for key, value in document.items() if key != name}))


@pytest.mark.parametrize(
    "rows",
    [
        [["dev_b", "00" * 32], ["dev_a", "11" * 32]],
        [["dev_a", "00" * 32], ["dev_a", "11" * 32]],
        [["dev_a", "AB" * 32]],
        [["dev_a"]],
        [["", "00" * 32]],
        [["d" * 300, "00" * 32]],
        {"dev_a": "00"},
    ],
    ids=str,
)
def test_participants_not_by_id_or_twice_are_refused(rows: Any) -> None:
    with pytest.raises(BadTerms):
        Participants.read(canonical.encode(rows))


def test_participants_are_those_of_the_terms_or_refused(terms: Terms, tmp_path: Path) -> None:
    people = SumFixture(tmp_path / "other").participants
    people.check(terms)
    with pytest.raises(BadTerms, match="not the one"):
        Participants.of({**people.keys, "dev_00": bytes(32)}).check(terms)
    with pytest.raises(BadTerms, match="not the one"):
        people.check(dataclasses.replace(terms, count=9))


@pytest.mark.parametrize("signature", [b"", bytes(64), bytes(63)])
def test_a_signature_that_is_none_is_no_error(signature: bytes) -> None:
    assert not signed_by(keys_of("dev_00").public().signing, b"message", signature)
    assert not signed_by(b"short", b"message", signature)


# --- rolls ------------------------------------------------------------------------------------------------------------


def test_candidates_and_survivors_are_read_as_they_were_written() -> None:
    candidates = [Candidate(f"dev_{at}", bytes([at]) * 32, bytes(32), b"\2" * 32, b"\3" * 64) for at in range(3)]
    assert read_candidates(candidates_text(reversed(candidates))) == candidates
    survivors = [(candidate.device, candidate.root) for candidate in candidates]
    assert read_survivors(survivors_text(survivors)) == survivors
    for text in ("[]x", '[["a"]]', "{}", candidates_text(candidates).replace("00", "0g")):
        with pytest.raises(BadTerms):
            read_candidates(text)
    with pytest.raises(BadTerms):
        read_survivors(survivors_text([*survivors, survivors[2]]))


@given(st.lists(st.tuples(st.text("abc_", min_size=1, max_size=9), st.binary(max_size=50)), max_size=5))
def test_letters_are_read_from_a_stream_as_they_were_framed(letters: list[tuple[str, bytes]]) -> None:
    stream = b"".join(framed(device, letter) for device, letter in letters)
    assert list(read_framed(io.BytesIO(stream))) == letters
    if stream:
        with pytest.raises(BadTerms):
            list(read_framed(io.BytesIO(stream[:-1])))


@pytest.mark.parametrize("stream", [b"\0\0\0\0\0\1x", b"\0\1a\xff\xff\xff\xff", b"\0"])
def test_a_damaged_stream_of_letters_is_refused(stream: bytes) -> None:
    with pytest.raises(BadTerms):
        list(read_framed(io.BytesIO(stream)))
