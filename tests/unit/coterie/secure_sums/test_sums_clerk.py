"""A clerk, killed and asked again in every state: the same bytes, or nothing."""

import dataclasses
import itertools
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coterie.protocol.letters import Header, seal
from coterie.secure_sums import masks
from coterie.secure_sums.acceptance import TermsRefused
from coterie.secure_sums.clerk import BadSurvivors, NotAClerk, ReadyCheckMissing, TooFewCommits
from coterie.secure_sums.committee_store import (
    CommitteeStore,
    CommitteeStoreUnavailable,
    ConflictingCommit,
    SessionOver,
)
from coterie.secure_sums.letters import LetterKey, Opened, seal_seeds, subject_of
from coterie.secure_sums.protocol_lists import in_company, lonely
from coterie.secure_sums.terms import BadTerms, Place
from coterie.secure_sums.uploads import Upload, most_bytes
from services.aggregation.errors import BadMaskedUpdate
from tests.attacks.sum_fixture import (
    NOON,
    TASK,
    SumFixture,
    check_signed_body,
    chosen_digest,
    keys_of,
    names,
    resigned,
    survivors_of,
)

FIRST = "dev_00"


@pytest.fixture
def sum_fixture(tmp_path: Path) -> SumFixture:
    return SumFixture(tmp_path)


# --- states -----------------------------------------------------------------------------------------------------------


def test_an_offer_is_the_same_before_and_after_a_crash(sum_fixture: SumFixture) -> None:
    one = sum_fixture.desks[FIRST].offer_key(sum_fixture.place, NOON + 600)
    assert sum_fixture.desks[FIRST].offer_key(sum_fixture.place, NOON + 900) == one
    assert sum_fixture.start(FIRST).offer_key(sum_fixture.place, NOON + 600) == one


def test_a_restarted_clerk_checks_commits_and_answers_with_the_same_bytes(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    ready_checks = sum_fixture.ready_check_all(terms, deliveries)
    survivors = survivors_of(deliveries)
    chosen = chosen_digest(terms, survivors)
    commits = sum_fixture.commit_all(terms, survivors)
    answer = sum_fixture.desks[FIRST].answer(terms, chosen, commits)
    again = sum_fixture.start(FIRST)
    with pytest.raises(ReadyCheckMissing):
        again.answer(terms, chosen, commits)
    with pytest.raises(ReadyCheckMissing):
        again.commit(terms, sum_fixture.participants, survivors)
    assert sum_fixture.ready_check(terms, FIRST, deliveries) == ready_checks[FIRST]
    assert again.commit(terms, sum_fixture.participants, survivors) == commits[FIRST]
    first_answer = again.answer(terms, chosen, commits)
    assert (first_answer.digests, first_answer.signature) == (answer.digests, answer.signature)
    for share, words in answer.sums.items():
        np.testing.assert_array_equal(first_answer.sums[share], words)


def test_an_agreement_is_on_disk_before_it_is_signed(sum_fixture: SumFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between storing and sending, the clerk signs the same set and refuses any other for ever."""
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    desk = sum_fixture.desks[FIRST]
    survivors, others = survivors_of(deliveries), survivors_of(deliveries, names(8)[:6])

    def killed(message: bytes) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(desk._keys), "sign", lambda self, message: killed(message))
    with pytest.raises(KeyboardInterrupt):
        desk.commit(terms, sum_fixture.participants, survivors)
    monkeypatch.undo()
    again = sum_fixture.start(FIRST)
    sum_fixture.ready_check(terms, FIRST, deliveries)
    with pytest.raises(ConflictingCommit):
        again.commit(terms, sum_fixture.participants, others)
    assert again.commit(terms, sum_fixture.participants, survivors)


def test_a_file_that_cannot_be_written_signs_nothing(sum_fixture: SumFixture, tmp_path: Path) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    (tmp_path / f"{FIRST}.db").rename(tmp_path / "away.db")
    with pytest.raises(CommitteeStoreUnavailable):
        sum_fixture.desks[FIRST].commit(terms, sum_fixture.participants, survivors_of(deliveries))
    assert not (tmp_path / f"{FIRST}.db").exists()


def test_nothing_is_answered_before_q_clerks_agreed(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    survivors = survivors_of(deliveries)
    chosen, desk = chosen_digest(terms, survivors), sum_fixture.desks[FIRST]
    with pytest.raises(BadSurvivors, match="not committed"):
        desk.answer(terms, chosen, {})
    commits = sum_fixture.commit_all(terms, survivors)
    two = dict(itertools.islice(commits.items(), 2))
    for given_ in (two, {**two, "dev_03": bytes(64), "dev_09": commits["dev_03"], "dev_02": commits["dev_01"]}):
        with pytest.raises(TooFewCommits):
            desk.answer(terms, chosen, given_)
    assert set(desk.answer(terms, chosen, {**two, "dev_02": commits["dev_02"]}).digests) == {1, 2, 3}
    with pytest.raises(BadSurvivors):
        desk.answer(terms, bytes(32), commits)


def test_a_ready_check_after_the_agreement_does_not_change_the_answer(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    survivors = survivors_of(deliveries)
    commits = sum_fixture.commit_all(terms, survivors)
    sum_fixture.ready_check(terms, FIRST, {device: deliveries[device] for device in names(2)})
    other = {**deliveries, "dev_05": sum_fixture.deliver(terms, "dev_05")}
    sum_fixture.ready_check(terms, FIRST, other)
    first_answer = sum_fixture.desks[FIRST].answer(terms, chosen_digest(terms, survivors), commits)
    again = sum_fixture.desks["dev_01"].answer(terms, chosen_digest(terms, survivors), commits)
    assert first_answer.digests[2] == again.digests[2]


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_what_was_forgotten_is_refused_for_ever(sum_fixture: SumFixture, tmp_path: Path) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    survivors = survivors_of(deliveries)
    commits = sum_fixture.commit_all(terms, survivors)
    sum_fixture.desks[FIRST].forget(sum_fixture.place)
    for desk in (sum_fixture.desks[FIRST], sum_fixture.start(FIRST)):
        desk.forget(sum_fixture.place)
        for asked in (
            lambda desk=desk: desk.offer_key(sum_fixture.place, NOON + 600),
            lambda: sum_fixture.ready_check(terms, FIRST, deliveries),
            lambda desk=desk: desk.commit(terms, sum_fixture.participants, survivors),
            lambda desk=desk: desk.answer(terms, chosen_digest(terms, survivors), commits),
        ):
            with pytest.raises(SessionOver):
                asked()
    content = (tmp_path / f"{FIRST}.db").read_bytes()
    assert terms.digest not in content


def test_an_offer_for_a_later_session_forgets_the_earlier(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    desk = sum_fixture.desks[FIRST]
    later = dataclasses.replace(sum_fixture.place, session_number=2)
    desk.offer_key(later, NOON + 600)
    for earlier in (sum_fixture.place, dataclasses.replace(sum_fixture.place, round=0)):
        with pytest.raises(SessionOver):
            desk.offer_key(earlier, NOON + 600)
    with pytest.raises(SessionOver):
        desk.ready_check(terms, sum_fixture.participants, [], {})
    desk.offer_key(dataclasses.replace(sum_fixture.place, task="tsk_other"), NOON + 600)
    desk.offer_key(dataclasses.replace(sum_fixture.place, cohort=1), NOON + 600)


def test_forgetting_what_was_never_offered_marks_nothing(sum_fixture: SumFixture) -> None:
    """Else a platform could end a clerk's service by naming a round far ahead."""
    desk = sum_fixture.desks[FIRST]
    desk.forget(Place(TASK, 0, 10**6, 1))
    assert desk.offer_key(sum_fixture.place, NOON + 600)


@pytest.mark.parametrize(("deadline", "kept_seconds"), [(600.0, 600 + 86_400), (30 * 86_400.0, 8 * 86_400)])
def test_a_clerk_forgets_by_itself_in_time(sum_fixture: SumFixture, deadline: float, kept_seconds: float) -> None:
    desk = sum_fixture.desks[FIRST]
    desk.offer_key(sum_fixture.place, NOON + deadline)
    sum_fixture.now = NOON + kept_seconds - 1
    desk.tidy()
    assert desk.offer_key(sum_fixture.place, NOON + deadline)
    sum_fixture.now = NOON + kept_seconds
    desk.tidy()
    with pytest.raises(SessionOver):
        desk.offer_key(sum_fixture.place, NOON + deadline)


def test_only_the_owner_may_read_the_clerks_file(sum_fixture: SumFixture, tmp_path: Path) -> None:
    path = tmp_path / f"{FIRST}.db"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"not a database, though long enough to look like one" * 20)
    with pytest.raises(CommitteeStoreUnavailable):
        CommitteeStore(path)


# --- terms and survivors a clerk does not take ------------------------------------------------------------------------


def test_terms_that_name_another_key_are_refused(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    with pytest.raises(NotAClerk, match="session key"):
        sum_fixture.ready_check(resigned(terms, FIRST), FIRST, deliveries)
    named = dataclasses.replace(terms.clerks[0], signing_key=keys_of("dev_07").public().signing)
    with pytest.raises(NotAClerk, match="signing key"):
        sum_fixture.ready_check(dataclasses.replace(terms, clerks=(named, *terms.clerks[1:])), FIRST, deliveries)
    with pytest.raises(NotAClerk, match="do not name"):
        sum_fixture.desks[FIRST].commit(
            dataclasses.replace(terms, clerks=terms.clerks[1:]), sum_fixture.participants, []
        )
    with pytest.raises(BadTerms, match="participants"):
        sum_fixture.desks[FIRST].ready_check(dataclasses.replace(terms, count=9), sum_fixture.participants, [], {})


def test_survivors_unchecked_too_few_or_duplicate_are_refused(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms, without=["dev_07"])
    late = sum_fixture.deliver(terms, "dev_07")
    sum_fixture.ready_check(terms, FIRST, deliveries)
    desk, survivors = sum_fixture.desks[FIRST], survivors_of(deliveries)
    other_root = [*survivors[:-1], (survivors[-1][0], bytes(32))]
    for wrong in (
        [*survivors, (late.device, late.upload.root)],
        other_root,
        survivors[:3],
        [survivors[0]] * 5,
        list(reversed(survivors)),
    ):
        with pytest.raises(BadSurvivors):
            desk.commit(terms, sum_fixture.participants, wrong)
    other = dataclasses.replace(terms, least=3)
    with pytest.raises(ReadyCheckMissing):
        desk.commit(other, sum_fixture.participants, survivors)
    assert desk.commit(terms, sum_fixture.participants, survivors)


# --- company ----------------------------------------------------------------------------------------------------------


def opened(company: list[int], least: int) -> Opened:
    return Opened({}, frozenset(bytes([key]) for key in company), least)


PEOPLE = st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.integers(0, 3)), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(PEOPLE)
def test_company_is_the_largest_set_in_which_no_device_is_lonely(people: list[tuple[list[int], int]]) -> None:
    """Brute force over all sets."""
    letters = {f"d{at}": opened(company, least) for at, (company, least) in enumerate(people)}
    keys = {f"d{at}": bytes([at]) for at in range(len(people))}
    content = [
        set(chosen)
        for size in range(len(people) + 1)
        for chosen in itertools.combinations(letters, size)
        if not lonely(letters, keys, chosen)
    ]
    best = in_company(letters, keys)
    assert best in content
    assert all(item <= best for item in content)


def test_two_devices_with_one_key_are_one_companion() -> None:
    letters = {"a": opened([7, 8], 2), "b": opened([], 0), "c": opened([], 0)}
    assert lonely(letters, {"a": b"\1", "b": b"\7", "c": b"\7"}, letters) == {"a"}
    assert lonely(letters, {"a": b"\1", "b": b"\7", "c": b"\x08"}, letters) == set()
    assert lonely({"a": opened([1], 1)}, {"a": b"\1"}, ["a"]) == {"a"}, "no device is its own company"


# --- letters and uploads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["terms", "shape", "seed", "root", "letter"])
def test_every_kind_of_bad_letter_has_its_fault(sum_fixture: SumFixture, fault: str) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    victim = deliveries["dev_06"]
    seeds = [bytes([share]) * 32 for share in range(4)]
    commitments = masks.commitments(terms.digest, "dev_06", seeds)
    key = LetterKey.generate()
    letter_terms = dataclasses.replace(terms, least=5) if fault == "terms" else terms
    letters = seal_seeds(
        letter_terms,
        "dev_06",
        key,
        seeds[::-1] if fault == "seed" else seeds,
        commitments=commitments,
        company=[bytes(32)] * 65 if fault == "shape" else [],
        company_least=1 if fault == "shape" else 0,
    )
    if fault == "letter":
        letters = [letter[:-1] + bytes([letter[-1] ^ 1]) for letter in letters]
    signed = commitments if fault != "root" else commitments[::-1]
    upload = Upload(victim.upload.masked, tuple(signed), key.public, tuple(letters))
    victim.upload, victim.signature = upload, keys_of("dev_06").sign(upload.message(terms, "dev_06"))
    for clerk in sum_fixture.desks:
        ready_check = sum_fixture.ready_check(terms, clerk, deliveries)
        assert ready_check.faults == {"dev_06": fault}
        assert set(ready_check.ready) == set(deliveries) - {"dev_06"}


@pytest.mark.parametrize("change", ["missing", "extra", "type", "rows", "negative"])
def test_letters_of_other_shapes_are_faults_not_errors(sum_fixture: SumFixture, change: str) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    victim, key = deliveries["dev_06"], LetterKey.generate()
    tensors: dict[str, NDArray[Any]] = {
        "terms": np.frombuffer(terms.digest, np.uint8),
        "seeds": np.zeros((3, 32), np.uint8),
        "commitments": np.zeros((4, 32), np.uint8),
        "company": np.zeros((0, 32), np.uint8),
        "company_least": np.zeros(1, np.int64),
    }
    if change == "missing":
        del tensors["company"]
    elif change == "extra":
        tensors["more"] = np.zeros(1, np.uint8)
    elif change == "type":
        tensors["seeds"] = np.zeros((3, 32), np.int8)
    elif change == "rows":
        tensors["commitments"] = np.zeros((5, 32), np.uint8)
    else:
        tensors["company_least"] = np.array([-1])
    box = dataclasses.replace(keys_of("dev_06"), sealing=key.private)
    letters = tuple(
        seal(Header(subject_of(terms), "dev_06", clerk.device), tensors, box, clerk.session_key)
        for clerk in terms.clerks
    )
    victim.upload = dataclasses.replace(victim.upload, letter_key=key.public, letters=letters)
    victim.signature = keys_of("dev_06").sign(victim.upload.message(terms, "dev_06"))
    assert sum_fixture.ready_check(terms, FIRST, deliveries).faults == {"dev_06": "shape"}


def test_letters_have_one_size_whatever_company_is_kept(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    seeds = [bytes([share]) * 32 for share in range(4)]
    commitments = masks.commitments(terms.digest, "dev_06", seeds)
    sizes = {
        len(letter)
        for company in (0, 1, 5)
        for letter in seal_seeds(
            terms,
            "dev_06",
            LetterKey.generate(),
            seeds,
            commitments=commitments,
            company=[bytes(32)] * company,
            company_least=company,
        )
    }
    assert len(sizes) == 1


def test_nothing_is_sealed_to_a_key_of_small_order(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    broken = dataclasses.replace(terms.clerks[1], session_key=bytes(32))
    with pytest.raises(TermsRefused, match="dev_01"):
        sum_fixture.deliver(dataclasses.replace(terms, clerks=(terms.clerks[0], broken, *terms.clerks[2:])), "dev_06")


def test_a_letter_key_of_small_order_is_a_fault(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    victim = deliveries["dev_06"]
    victim.upload = dataclasses.replace(victim.upload, letter_key=bytes(32))
    victim.signature = keys_of("dev_06").sign(victim.upload.message(terms, "dev_06"))
    assert sum_fixture.ready_check(terms, FIRST, deliveries).faults == {"dev_06": "letter"}


@pytest.mark.parametrize("bits", [32, 64])
def test_the_platform_reads_a_body_as_it_was_made_and_checks_its_signature(tmp_path: Path, bits: int) -> None:
    sum_fixture = SumFixture(tmp_path, bits=bits)
    terms = sum_fixture.terms()
    delivery = sum_fixture.deliver(terms, "dev_05", [1, -2, 3, 4, 5])
    body, upload = delivery.upload.body(), delivery.upload
    assert len(body) <= most_bytes(terms)
    signing_key = keys_of("dev_05").public().signing
    file = check_signed_body(body, terms, "dev_05", signing_key, delivery.signature)
    assert (file.commitments, file.letter_key, file.root) == (upload.commitments, upload.letter_key, upload.root)
    assert body[file.words.start : file.words.stop] == upload.masked.tobytes()
    assert tuple(body[start : start + length] for start, length in file.letters) == upload.letters
    for device, of, signature in (
        ("dev_06", terms, delivery.signature),
        ("dev_05", dataclasses.replace(terms, session_number=2), delivery.signature),
        ("dev_05", terms, bytes(64)),
    ):
        with pytest.raises(BadMaskedUpdate, match="not signed"):
            check_signed_body(body, of, device, signing_key, signature)


def test_bodies_of_other_shapes_are_refused(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    upload = sum_fixture.deliver(terms, "dev_05").upload
    for wrong in (
        dataclasses.replace(upload, masked=upload.masked[:-1]),
        dataclasses.replace(upload, masked=upload.masked.astype(np.uint32)),
        dataclasses.replace(upload, commitments=upload.commitments[:-1]),
        dataclasses.replace(upload, letters=upload.letters[:-1]),
        dataclasses.replace(upload, letters=(*upload.letters, b"more")),
        dataclasses.replace(upload, letter_key=bytes(31)),
        dataclasses.replace(upload, letters=(*upload.letters[:-1], bytes(20_000))),
    ):
        with pytest.raises(BadMaskedUpdate):
            check_signed_body(wrong.body(), terms, "dev_05", bytes(32), bytes(64))
    for junk in (b"", b"junk", upload.body()[:-1], bytes(most_bytes(terms) + 1)):
        with pytest.raises(BadMaskedUpdate):
            check_signed_body(junk, terms, "dev_05", bytes(32), bytes(64))


def test_no_secret_is_printed(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    key = LetterKey.generate()
    assert key.private.hex() not in repr(key)
    assert repr(key.private) not in repr(key)
    letter = Opened({0: b"S" * 32}, frozenset(), 0)
    assert "SSSS" not in repr(letter)
    assert "SSSS" not in f"{letter}"
    assert terms.text
