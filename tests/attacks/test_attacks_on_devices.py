"""Attacks of the secure-sums specification (§9) on devices, and what is kept and told about them."""

import dataclasses
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.privacy.simulation import SeededStream
from coterie.secure_sums import masks, notes, uploads
from coterie.secure_sums.acceptance import Promise, TermsRefused, check_terms
from coterie.secure_sums.circle import Circle
from coterie.secure_sums.contribution import contribution, purpose
from coterie.secure_sums.grid import Extent, choose_grid
from coterie.secure_sums.letters import LetterKey
from coterie.secure_sums.terms import BadTerms, NamedClerk, Participants, Terms, offer_message
from tests.attacks.sum_fixture import (
    PROMISE,
    SumFixture,
    chosen_digest,
    circle_of,
    keys_of,
    myself,
    names,
    resigned,
    survivors_of,
)

ME = "dev_07"
NOISY = dataclasses.replace(PROMISE, noise_multiplier=2.0)


@pytest.fixture
def sum_fixture(tmp_path: Path) -> SumFixture:
    return SumFixture(tmp_path, least=6)


def noisy(terms: Terms) -> Terms:
    blank = dataclasses.replace(terms, noise_multiplier="2.0")
    grid = choose_grid(blank.count, blank.elements, 1.0, 2.0, blank.honest)
    return dataclasses.replace(blank, bits=grid.bits, scale=grid.scale)


def check(
    terms: Terms, people: Participants, promise: Promise = PROMISE, circle: Circle | None = None, device: str = ME
) -> None:
    check_terms(terms, people, myself(device), promise, circle or circle_of(names(8)))


# --- 5, 14: second sessions and old rounds ----------------------------------------------------------------------------


def test_a_second_session_has_fresh_seeds_noise_and_charge(sum_fixture: SumFixture) -> None:
    first = noisy(sum_fixture.terms())
    one = sum_fixture.deliver(first, ME)
    sum_fixture.session_number = 2
    second = noisy(sum_fixture.terms())
    two = sum_fixture.deliver(second, ME)
    assert not set(one.upload.commitments) & set(two.upload.commitments)
    assert one.upload.letter_key != two.upload.letter_key
    assert purpose(first) != purpose(second)
    again = sum_fixture.deliver(second, ME)
    assert not set(again.upload.commitments) & set(two.upload.commitments), "no seed is used twice"


def test_without_noise_a_second_session_is_declined(sum_fixture: SumFixture, tmp_path: Path) -> None:
    first = sum_fixture.terms()
    sum_fixture.session_number = 2
    second = sum_fixture.terms()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        notes.prepare(database)
        notes.note(database, first)
        with pytest.raises(TermsRefused, match="only one update"):
            notes.note(database, second)


def test_an_old_round_or_session_is_refused_though_the_outbox_is_empty(sum_fixture: SumFixture, tmp_path: Path) -> None:
    """The note outlives the outbox: it is in the ledger's file."""
    old = noisy(sum_fixture.terms())
    sum_fixture.round, sum_fixture.session_number = 3, 2
    new = noisy(sum_fixture.terms())
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as database, database:
        notes.prepare(database)
        notes.note(database, new)
    with closing(sqlite3.connect(path)) as database:
        notes.prepare(database)
        for refused in (old, dataclasses.replace(new, session_number=1), dataclasses.replace(new, cohort=4)):
            with pytest.raises(TermsRefused, match="already prepared"):
                notes.note(database, refused)
        assert notes.note(database, new)


# --- 6: substituted keys and owners -----------------------------------------------------------------------------------


def with_clerk(terms: Terms, at: int, **changes: Any) -> Terms:
    clerks = list(terms.clerks)
    clerks[at] = dataclasses.replace(clerks[at], **changes)
    return dataclasses.replace(terms, clerks=tuple(clerks))


def test_a_substituted_clerk_key_is_refused_loudly(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    evil = keys_of("evil")
    clerk = terms.clerks[1]
    signature = evil.sign(offer_message(terms.place, clerk.device, clerk.session_key))
    with pytest.raises(TermsRefused, match="ANOTHER KEY"):
        check(with_clerk(terms, 1, signing_key=evil.public().signing, signature=signature), sum_fixture.participants)


def test_a_substituted_session_key_is_refused(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    with pytest.raises(TermsRefused, match="not signed by it"):
        check(with_clerk(terms, 2, session_key=b"\7" * 32), sum_fixture.participants)
    check(resigned(terms, "dev_02"), sum_fixture.participants)  # the clerk itself may choose its key


def test_an_offer_of_another_session_is_refused(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    sum_fixture.session_number = 2
    later = sum_fixture.terms()
    with pytest.raises(TermsRefused, match="not signed by it"):
        check(dataclasses.replace(later, clerks=terms.clerks), sum_fixture.participants)


def test_a_substituted_owner_is_refused(sum_fixture: SumFixture) -> None:
    """Else one owner could hold two assignments under another's name."""
    terms = sum_fixture.terms()
    with pytest.raises(TermsRefused, match="another owner"):
        check(with_clerk(terms, 3, owner="own_else"), sum_fixture.participants)
    two_of_one = circle_of(names(8))
    members = dict(two_of_one.members)
    members["dev_03"] = dataclasses.replace(members["dev_03"], owner=members["dev_02"].owner)
    with pytest.raises(TermsRefused, match="another owner"):
        check(terms, sum_fixture.participants, circle=dataclasses.replace(two_of_one, members=members))


def test_a_substituted_participant_key_is_refused(sum_fixture: SumFixture) -> None:
    for device in (ME, "dev_05"):
        people = Participants.of({**sum_fixture.participants.keys, device: keys_of("evil").public().signing})
        terms = dataclasses.replace(sum_fixture.terms(), participants=people.digest)
        with pytest.raises(TermsRefused, match=r"under its own key|ANOTHER KEY"):
            check(terms, people)
    absent = Participants.of({device: key for device, key in sum_fixture.participants.keys.items() if device != ME})
    terms = dataclasses.replace(sum_fixture.terms(), participants=absent.digest, count=7)
    with pytest.raises(TermsRefused):
        check(terms, absent)


def test_strangers_posing_under_new_ids_are_no_members(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    evil = keys_of("evil")
    session = b"\5" * 32
    posing = NamedClerk(
        "dev_evil",
        "own_evil",
        evil.public().signing,
        session,
        evil.sign(offer_message(terms.place, "dev_evil", session)),
    )
    with pytest.raises(TermsRefused, match="not in this device's circle"):
        check(dataclasses.replace(terms, clerks=(*terms.clerks[:3], posing)), sum_fixture.participants)


# --- 7: letters swapped, damaged, replayed ----------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ["letter key", "root", "damage", "another device", "another session", "missing"])
def test_a_tampered_letter_is_the_fault_of_that_device_alone(sum_fixture: SumFixture, attack: str) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    victim = deliveries["dev_06"]
    up = victim.upload
    if attack == "letter key":
        victim.upload = dataclasses.replace(up, letter_key=LetterKey.generate().public)
    elif attack == "root":
        victim.upload = dataclasses.replace(up, commitments=up.commitments[::-1])
    elif attack == "damage":
        damaged = bytearray(up.letters[0])
        damaged[len(damaged) // 2] ^= 1
        victim.upload = dataclasses.replace(up, letters=(bytes(damaged), *up.letters[1:]))
    elif attack == "another device":
        victim.upload = dataclasses.replace(up, letters=deliveries["dev_05"].upload.letters)
    elif attack == "another session":
        victim.upload = sum_fixture.deliver(dataclasses.replace(terms, session_number=2), "dev_06").upload
        victim.signature = keys_of("dev_06").sign(victim.upload.message(terms, "dev_06"))
    else:
        victim.upload = dataclasses.replace(up, letters=(b"", *up.letters[1:]))
    ready_check = sum_fixture.ready_check(terms, "dev_00", deliveries)
    assert set(ready_check.faults) == {"dev_06"}
    assert set(ready_check.ready) == set(names(8)) - {"dev_06"}


def test_a_letter_of_another_round_is_a_fault(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    victim = deliveries["dev_06"]
    victim.upload = sum_fixture.deliver(dataclasses.replace(terms, round=9), "dev_06").upload
    victim.signature = keys_of("dev_06").sign(victim.upload.message(terms, "dev_06"))
    assert sum_fixture.ready_check(terms, "dev_00", deliveries).faults == {"dev_06": "terms"}


def test_a_candidate_the_platform_invented_is_a_stranger(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    deliveries["syb_1"] = sum_fixture.deliver(terms, "syb_1")
    ready_check = sum_fixture.ready_check(terms, "dev_00", deliveries)
    assert ready_check.faults == {"syb_1": "stranger"}


# --- 11: garbage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("elements", "bits"), [(500, 32), (5, 64)])
def test_a_garbage_upload_is_out_of_range(tmp_path: Path, elements: int, bits: int) -> None:
    """Random words for a value: by their norm at 32 bits, by their range at 64."""
    sum_fixture = SumFixture(tmp_path, least=6, elements=elements)
    terms = noisy(sum_fixture.terms())
    assert terms.bits == bits
    deliveries = {
        device: sum_fixture.deliver(terms, device, contribution(np.ones(elements), terms, 1.0, SeededStream(device)))
        for device in sum_fixture.devices
    }
    honest = sum_fixture.open(terms, deliveries)
    assert Extent.of(honest).fault(8, terms.grid()) is None
    other = SumFixture(tmp_path / "other", least=6, elements=elements)
    again = noisy(other.terms())
    mixed = {device: other.deliver(again, device, item.values) for device, item in deliveries.items()}
    garbage = np.random.default_rng(1).integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, elements)
    mixed["dev_03"] = other.deliver(again, "dev_03", garbage)
    assert Extent.of(other.open(again, mixed)).fault(8, again.grid()) is not None


# --- 12: what is kept and told ----------------------------------------------------------------------------------------


def test_neither_platform_nor_one_clerk_has_a_seed_value_or_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planted = [bytes([0xA0 + at]) * 32 for at in range(4)]
    letter_key = b"\xd3" * 32
    drawn = iter(planted * 8)
    monkeypatch.setattr(uploads, "token_bytes", lambda count: next(drawn))
    monkeypatch.setattr(LetterKey, "generate", classmethod(lambda cls: LetterKey(letter_key)))
    sum_fixture = SumFixture(tmp_path)
    terms = sum_fixture.terms()
    value = [0x1122334455667788 % 2**40 + at for at in range(5)]
    with caplog.at_level(logging.DEBUG):
        deliveries = {device: sum_fixture.deliver(terms, device, value) for device in sum_fixture.devices}
        ready_checks = sum_fixture.ready_check_all(terms, deliveries)
        survivors = survivors_of(deliveries)
        agreements = sum_fixture.commit_all(terms, survivors)
        answers = sum_fixture.answer_all(terms, chosen_digest(terms, survivors), agreements)
    secrets = [
        *planted,
        letter_key,
        np.array(value).tobytes(),
        *(keys_of(name).signing for name in sum_fixture.devices),
    ]
    seen = [delivery.upload.body() for delivery in deliveries.values()]
    seen += [
        repr(ready_checks).encode(),
        repr(agreements).encode(),
        terms.text.encode(),
        sum_fixture.participants.text.encode(),
    ]
    seen += [words.tobytes() for answer in answers.values() for words in answer.sums.values()]
    seen += [path.read_bytes() for path in tmp_path.iterdir()]
    seen.append(caplog.text.encode())
    for secret in secrets:
        for content in seen:
            assert secret not in content
            assert secret.hex().encode() not in content


# --- 13: downgrades ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"noise_multiplier": "0.0"}, "other noise"),
        ({"noise_multiplier": "1.9999"}, "other noise"),
        ({"honest": 5, "least": 5}, "more honest"),
        ({"clip_norm": "0.0"}, "no clip norm"),
    ],
    ids=str,
)
def test_a_downgrade_is_declined(sum_fixture: SumFixture, changes: dict[str, Any], why: str) -> None:
    terms = dataclasses.replace(noisy(sum_fixture.terms()), **changes)
    with pytest.raises(TermsRefused, match=why):
        check(terms, sum_fixture.participants, NOISY)


@pytest.mark.parametrize("noise", ["nan", "inf", "-2.0", "2", "2.0 "])
def test_noise_that_is_no_number_is_refused(sum_fixture: SumFixture, noise: str) -> None:
    text = noisy(sum_fixture.terms()).text.replace('"noise_multiplier":"2.0"', f'"noise_multiplier":"{noise}"')
    if noise == "2":
        check(Terms.read(text), sum_fixture.participants, NOISY)
        return
    with pytest.raises(BadTerms):
        Terms.read(text)


def test_a_smaller_committee_than_promised_is_declined(tmp_path: Path) -> None:
    smaller = SumFixture(tmp_path / "three", clerks=3, least=6)
    with pytest.raises(TermsRefused, match="number of clerks"):
        check(smaller.terms(), smaller.participants)
    five = SumFixture(tmp_path / "five", clerks=5, threshold=3, least=6)
    terms = five.terms()
    check(terms, five.participants, Promise(5, 3, 2, 0.0))
    with pytest.raises(TermsRefused, match="number of clerks"):
        check(terms, five.participants, Promise(5, 2, 2, 0.0))


def test_an_empty_circle_declines_and_names_the_commands(sum_fixture: SumFixture) -> None:
    with pytest.raises(TermsRefused, match="coterie circle verify dev_00; coterie circle verify dev_01"):
        check(sum_fixture.terms(), sum_fixture.participants, circle=Circle())


def test_masks_hide_equal_values_from_each_other(sum_fixture: SumFixture) -> None:
    """Two devices with the same update send words that have nothing in common."""
    terms = sum_fixture.terms()
    one, other = (sum_fixture.deliver(terms, device, [5] * 5).upload.masked for device in ("dev_01", "dev_02"))
    assert not set(one.tolist()) & set(other.tolist())
    assert masks.word_type(64) == one.dtype
