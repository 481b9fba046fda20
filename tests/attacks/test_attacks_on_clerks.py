"""Attacks of the secure-sums specification (§9) on clerks: each must fail as said."""

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from coterie.secure_sums import canonical, masks
from coterie.secure_sums.clerk import BadSurvivors, ReadyCheckMissing, TooFewCommits
from coterie.secure_sums.committee_store import ClerkRefuses, CommitteeStore, ConflictingCommit, SessionOver
from coterie.secure_sums.protocol_lists import read_survivors
from coterie.secure_sums.terms import BadTerms, Participants, Place, Terms, commit_message
from services.aggregation.domain.sum_decisions import (
    CheckAgain,
    Settled,
    count_votes,
    judge_ready_checks,
    rejected_devices,
)
from tests.attacks.sum_fixture import (
    NOON,
    TASK,
    SumFixture,
    chosen_digest,
    circle_of,
    clear_sum,
    keys_of,
    names,
    survivors_of,
)


@pytest.fixture
def sum_fixture(tmp_path: Path) -> SumFixture:
    return SumFixture(tmp_path)


# --- 1: different survivors to different clerks -----------------------------------------------------------------------


def two_sets_answered(clerks: int, threshold: int, quorum: int) -> bool:
    """Whether some split of the honest clerks, all t − 1 traitors signing both sets, gives two sets a quorum."""
    honest = clerks - (threshold - 1)
    return any(
        all(sides.count(side) + threshold - 1 >= quorum for side in (0, 1)) and {0, 1} <= set(sides)
        for sides in product((0, 1), repeat=honest)
    )


@pytest.mark.parametrize(("clerks", "threshold"), [(3, 2), (4, 2), (5, 3), (7, 3)])
def test_no_split_of_the_honest_gives_two_sets_a_quorum(clerks: int, threshold: int) -> None:
    assert not two_sets_answered(clerks, threshold, masks.commit_quorum(clerks, threshold))
    assert two_sets_answered(clerks, threshold, masks.commit_quorum(clerks, threshold) - 1), "q is the least that does"


def test_three_clerks_of_whom_two_agree_would_fall_to_one_traitor() -> None:
    """Why "3 clerks, any 2" with two agreeing is not offered."""
    assert two_sets_answered(3, 2, quorum=2)


@pytest.mark.parametrize("clerks", [3, 4])
def test_different_survivors_to_different_clerks_are_never_both_answered(clerks: int, tmp_path: Path) -> None:
    for number, sides in enumerate(product((0, 1), repeat=clerks - 1)):
        sum_fixture = SumFixture(tmp_path / str(number), names(6), clerks)
        terms = sum_fixture.terms()
        deliveries = sum_fixture.deliver_all(terms)
        sum_fixture.ready_check_all(terms, deliveries)
        sets = [survivors_of(deliveries), survivors_of(deliveries, names(6)[:5])]
        digests = [chosen_digest(terms, item) for item in sets]
        traitor, *honest = names(clerks)
        signed = [{traitor: keys_of(traitor).sign(commit_message(terms.digest, digest))} for digest in digests]
        for clerk, side in zip(honest, sides, strict=True):
            signed[side][clerk] = sum_fixture.desks[clerk].commit(terms, sum_fixture.participants, sets[side])
            with pytest.raises(ConflictingCommit):
                sum_fixture.desks[clerk].commit(terms, sum_fixture.participants, sets[1 - side])
        answered = {
            side
            for side in (0, 1)
            for clerk in honest
            if _answers(sum_fixture, clerk, terms, digests[side], signed[side] | _stolen(signed[1 - side]))
        }
        assert len(answered) <= 1


def _stolen(signatures: dict[str, bytes]) -> dict[str, bytes]:
    """Signatures of the other set, shown for this one under ids that have none."""
    return {f"{clerk} again": signature for clerk, signature in signatures.items()}


def _answers(sum_fixture: SumFixture, clerk: str, terms: Terms, chosen: bytes, commits: dict[str, bytes]) -> bool:
    try:
        sum_fixture.desks[clerk].answer(terms, chosen, commits)
    except (BadSurvivors, TooFewCommits):
        return False
    return True


# --- 2: too few survivors, lowered terms ------------------------------------------------------------------------------


def test_fewer_survivors_than_promised_are_refused(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    for desk in sum_fixture.desks.values():
        with pytest.raises(BadSurvivors, match="fewer"):
            desk.commit(terms, sum_fixture.participants, survivors_of(deliveries, names(8)[:3]))


def test_with_terms_lowered_for_clerks_only_all_signatures_fail(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    lowered = dataclasses.replace(terms, least=3, honest=2)
    for ready_check in sum_fixture.ready_check_all(lowered, deliveries).values():
        assert ready_check.ready == ()
        assert set(ready_check.faults.values()) == {"signature"}
    for desk in sum_fixture.desks.values():
        with pytest.raises(BadSurvivors, match="not checked"):
            desk.commit(lowered, sum_fixture.participants, survivors_of(deliveries, names(8)[:3]))


def test_what_was_opened_under_other_terms_of_the_place_does_not_count(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    lowered = dataclasses.replace(terms, least=3, honest=2)
    for desk in sum_fixture.desks.values():
        with pytest.raises(ReadyCheckMissing):
            desk.commit(lowered, sum_fixture.participants, survivors_of(deliveries, names(8)[:3]))


# --- 3: sybils --------------------------------------------------------------------------------------------------------

FRIENDS = names(8)[:4]


def test_among_sybils_a_device_is_in_no_sum_without_three_of_its_company(tmp_path: Path) -> None:
    """n − 1 sybils: devices of the platform's own making, ready to be in any sum."""
    sybils = [f"syb_{number}" for number in range(12)]
    sum_fixture = SumFixture(tmp_path, [*FRIENDS, "dev_victim", *sybils])
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    deliveries["dev_victim"] = sum_fixture.deliver(terms, "dev_victim", circle=circle_of(FRIENDS, company_least=3))
    for there in (0, 1, 2, 3):
        alive = {device: item for device, item in deliveries.items() if device not in FRIENDS[there:]}
        for clerk in sum_fixture.desks:
            ready_check = sum_fixture.ready_check(terms, clerk, alive)
            assert ("dev_victim" in ready_check.ready) == (there == 3)
            assert ready_check.faults == ({} if there == 3 else {"dev_victim": "company"})


def test_company_that_drops_after_the_ready_check_takes_the_device_with_it(tmp_path: Path) -> None:
    sybils = [f"syb_{number}" for number in range(12)]
    sum_fixture = SumFixture(tmp_path, [*FRIENDS, "dev_victim", *sybils])
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    deliveries["dev_victim"] = sum_fixture.deliver(terms, "dev_victim", circle=circle_of(FRIENDS, company_least=3))
    sum_fixture.ready_check_all(terms, deliveries)
    dropped = survivors_of(deliveries, [*FRIENDS[:2], "dev_victim", *sybils])
    for desk in sum_fixture.desks.values():
        with pytest.raises(BadSurvivors, match="company"):
            desk.commit(terms, sum_fixture.participants, dropped)


def test_sybils_listed_under_the_companys_keys_at_agree_are_refused(tmp_path: Path) -> None:
    """The participants' digest is checked again: the list shown now must be the one of the terms."""
    sybils = [f"syb_{number}" for number in range(12)]
    sum_fixture = SumFixture(tmp_path, [*FRIENDS, "dev_victim", *sybils])
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    deliveries["dev_victim"] = sum_fixture.deliver(terms, "dev_victim", circle=circle_of(FRIENDS, company_least=3))
    sum_fixture.ready_check_all(terms, deliveries)
    keys = dict(sum_fixture.participants.keys)
    for friend, sybil in zip(FRIENDS, sybils, strict=False):
        keys[sybil] = keys[friend]
    for desk in sum_fixture.desks.values():
        with pytest.raises(BadTerms, match="participants"):
            desk.commit(terms, Participants.of(keys), survivors_of(deliveries, ["dev_victim", *sybils]))


def test_one_friend_under_three_ids_is_one_companion(tmp_path: Path) -> None:
    """The terms themselves list sybils under a friend's key: they cannot sign, and would count once."""
    sum_fixture = SumFixture(tmp_path, [*FRIENDS, "dev_victim", "syb_0", "syb_1"])
    keys = {**sum_fixture.participants.keys, **dict.fromkeys(("syb_0", "syb_1"), keys_of(FRIENDS[0]).public().signing)}
    people = Participants.of(keys)
    terms = dataclasses.replace(sum_fixture.terms(), participants=people.digest)
    deliveries = sum_fixture.deliver_all(terms, without=FRIENDS[1:])
    deliveries["dev_victim"] = sum_fixture.deliver(terms, "dev_victim", circle=circle_of(FRIENDS, company_least=3))
    ready_check = sum_fixture.ready_check(terms, FRIENDS[0], deliveries, people)
    assert ready_check.faults == {"dev_victim": "company", "syb_0": "signature", "syb_1": "signature"}


# --- 4: replay after forgetting ---------------------------------------------------------------------------------------


def test_replayed_round_is_refused_after_forget_and_after_reopening(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.open(terms, deliveries)
    for clerk in list(sum_fixture.desks):
        sum_fixture.desks[clerk].forget(sum_fixture.place)
    for clerk in list(sum_fixture.desks):
        for desk in (sum_fixture.desks[clerk], sum_fixture.start(clerk)):
            with pytest.raises(SessionOver):
                desk.offer_key(sum_fixture.place, NOON + 600)
            with pytest.raises(SessionOver):
                sum_fixture.ready_check(terms, clerk, deliveries)
            with pytest.raises(SessionOver):
                desk.commit(terms, sum_fixture.participants, survivors_of(deliveries, names(8)[:5]))


def test_letters_of_a_forgotten_session_do_not_open_in_the_next(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    for desk in sum_fixture.desks.values():
        desk.forget(sum_fixture.place)
    sum_fixture.session_number = 2
    later = sum_fixture.terms()
    for ready_check in sum_fixture.ready_check_all(later, deliveries).values():
        assert ready_check.ready == ()


@pytest.mark.parametrize("signatures", [1, 4])
def test_a_clerk_killed_at_any_moment_has_on_disk_whatever_it_signed(tmp_path: Path, signatures: int) -> None:
    """kill −9: a signature on D exists only with (T, D), or a mark past it, on that clerk's disk."""
    command = [sys.executable, "-m", "tests.attacks.stubborn_clerk", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(signatures)]
        process.kill()
        lines += [line.split() for line in process.stdout if line.endswith("\n")]
    store = CommitteeStore(tmp_path / "dev_00.db")
    for number, terms, chosen, _ in lines:
        place = Place(TASK, 0, int(number), 1)
        with contextlib.suppress(SessionOver):  # raised for a mark past the place, and for nothing else
            assert store.committed(place) == (bytes.fromhex(terms), bytes.fromhex(chosen))
        with pytest.raises((ConflictingCommit, SessionOver)):
            store.commit(place, bytes.fromhex(terms), bytes(32))


# --- 8, 10: a device that cheats one clerk, a clerk that slanders -----------------------------------------------------


def test_device_sealing_other_seeds_to_one_clerk_is_excluded_sum_unchanged(
    sum_fixture: SumFixture,
) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    cheat = deliveries["dev_06"]
    other = sum_fixture.deliver(terms, "dev_06")
    letters = (cheat.upload.letters[0], other.upload.letters[1], *cheat.upload.letters[2:])
    cheat.upload = dataclasses.replace(cheat.upload, letters=letters)
    faults = {
        at: sum_fixture.ready_check(terms, clerk, deliveries).faults for at, clerk in enumerate(sum_fixture.desks)
    }
    assert faults == {0: {}, 1: {"dev_06": "letter"}, 2: {}, 3: {}}
    assert rejected_devices(faults, 2) == frozenset(), "one clerk's word punishes no device"
    settled = sum_fixture.settle(terms, deliveries)
    assert settled == Settled(frozenset(range(4)), frozenset(set(names(8)) - {"dev_06"}))
    honest = [deliveries[device] for device in names(8) if device != "dev_06"]
    assert sum_fixture.open(terms, deliveries).tolist() == clear_sum(honest).tolist()


def test_removing_a_faulted_device_equals_never_having_had_it(tmp_path: Path) -> None:
    sum_fixture = SumFixture(tmp_path)
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    deliveries["dev_06"].signature = bytes(64)
    with_it = sum_fixture.open(terms, deliveries)
    again = SumFixture(tmp_path / "again")
    other = again.terms()
    without = again.open(other, again.deliver_all(other, without=["dev_06"]))
    assert with_it.tolist() == without.tolist()


def test_slandering_clerk_is_excluded_and_its_victim_goes_unpunished() -> None:
    everyone = frozenset(names(20))

    def judged(slandered: Iterable[str]) -> object:
        ready = dict.fromkeys(range(3), everyone) | {3: everyone - set(slandered)}
        return judge_ready_checks(ready, range(4), everyone, least=10, quorum=3, patience_over=False)

    assert judged(names(20)[:3]) == Settled(frozenset({0, 1, 2}), everyone)
    assert judged(names(20)[:1]) == CheckAgain(frozenset(range(4)), everyone - {"dev_00"})
    assert rejected_devices({3: {"dev_00": "seed"}}, 2) == frozenset()


# --- 9: lying clerks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("liar", range(4))
def test_a_clerk_one_word_off_by_one_is_outvoted_and_named(sum_fixture: SumFixture, liar: int) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    survivors = survivors_of(deliveries)
    answers = list(
        sum_fixture.answer_all(
            terms, chosen_digest(terms, survivors), sum_fixture.commit_all(terms, survivors)
        ).values()
    )
    lied = sorted(answers[liar].sums)[0]
    wrong = answers[liar].sums[lied].copy()
    wrong[2] += 1
    digests_of = {at: dict(answer.digests) for at, answer in enumerate(answers)}
    digests_of[liar][lied] = masks.digest(wrong.tobytes())
    votes = count_votes(digests_of, 4, 2)
    assert votes.outvoted == {liar}
    believed = votes.believed(unchecked=False)
    assert believed is not None
    sums = [
        next(answer.sums[k] for answer in answers if answer.digests.get(k) == value) for k, value in believed.items()
    ]
    total = sum(
        (delivery.upload.masked for delivery in deliveries.values()), start=0 * deliveries["dev_00"].upload.masked
    )
    assert masks.opened(total, sums).tolist() == clear_sum(deliveries.values()).tolist()
    # With one honest clerk silent the lie is noticed and nothing is folded, unless the liar is outvoted elsewhere.
    for lost in set(range(4)) - {liar}:
        three = count_votes({at: digests for at, digests in digests_of.items() if at != lost}, 4, 2)
        taken = three.believed(unchecked=True)
        assert taken is None or taken == believed
        assert three.outvoted <= {liar}


# --- 15, 16: repeated ids and keys, two cohorts -----------------------------------------------------------------------


def test_survivors_with_one_id_three_times_are_refused(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    deliveries = sum_fixture.deliver_all(terms)
    sum_fixture.ready_check_all(terms, deliveries)
    one = survivors_of(deliveries)[0]
    padded = [one, one, one, survivors_of(deliveries)[1]]
    with pytest.raises(BadTerms):
        read_survivors(canonical.encode([[device, root.hex()] for device, root in padded]))
    for desk in sum_fixture.desks.values():
        with pytest.raises(BadSurvivors, match="without duplicates"):
            desk.commit(terms, sum_fixture.participants, padded)


def test_terms_with_repeated_key_or_one_key_behind_two_clerks_are_refused(sum_fixture: SumFixture) -> None:
    terms = sum_fixture.terms()
    with pytest.raises(BadTerms, match="canonical"):
        Terms.read(terms.text.replace('"bits":64', '"bits":64,"bits":64'))
    doubled = dataclasses.replace(terms.clerks[1], signing_key=terms.clerks[0].signing_key)
    with pytest.raises(BadTerms, match="two clerks"):
        Terms.read(dataclasses.replace(terms, clerks=(terms.clerks[0], doubled, *terms.clerks[2:])).text)


def test_a_clerk_of_two_cohorts_that_forgets_one_serves_the_other(sum_fixture: SumFixture) -> None:
    first = sum_fixture.terms()
    sum_fixture.cohort = 1
    other = sum_fixture.terms()
    for desk in sum_fixture.desks.values():
        desk.forget(first.place)
    deliveries = sum_fixture.deliver_all(other)
    assert sum_fixture.open(other, deliveries).tolist() == clear_sum(deliveries.values()).tolist()
    with pytest.raises(ClerkRefuses):
        sum_fixture.ready_check(first, "dev_00", deliveries)
