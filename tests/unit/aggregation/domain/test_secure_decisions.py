"""The platform's decisions in a secure sum: survivors, shares, conduct; and what a task may ask."""

from collections.abc import Collection, Mapping
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.secure_sums.masks import held_shares
from services.aggregation.domain.sum_decisions import (
    CheckAgain,
    ReadyCheckStep,
    Settled,
    TooFewSurvivors,
    Wait,
    count_votes,
    is_whole_answer,
    judge_ready_checks,
    may_join,
    rejected_devices,
)

ALL = frozenset(f"d{at:02}" for at in range(20))


def judge(ready: Mapping[int, Collection[str]], *, over: bool = False, least: int = 10, **more: int) -> ReadyCheckStep:
    return judge_ready_checks(
        ready, range(more.get("clerks", 4)), ALL, least=least, quorum=more.get("quorum", 3), patience_over=over
    )


# --- ready checks ----------------------------------------------------------------------------------------------------


def test_all_clerks_are_waited_for_and_q_of_them_when_patience_ends() -> None:
    three = dict.fromkeys(range(3), ALL)
    assert judge(three) == Wait()
    assert judge(three, over=True) == Settled(frozenset(range(3)), ALL)
    assert judge(dict.fromkeys(range(2), ALL), over=True) == Wait()
    assert judge(dict.fromkeys(range(4), ALL)) == Settled(frozenset(range(4)), ALL)


def test_device_that_cheats_one_clerk_loses_its_place_and_clerk_stays() -> None:
    step = judge({0: ALL, 1: ALL, 2: ALL - {"d03"}, 3: ALL})
    assert step == CheckAgain(frozenset(range(4)), ALL - {"d03"})
    assert judge_ready_checks(
        dict.fromkeys(range(4), ALL - {"d03"}), range(4), ALL - {"d03"}, least=10, quorum=3, patience_over=False
    ) == Settled(frozenset(range(4)), ALL - {"d03"})


def test_a_slandering_clerk_loses_its_own_place() -> None:
    """Two or more, and over a tenth of the candidates."""
    assert judge({0: ALL, 1: ALL - {"d00", "d01", "d02"}, 2: ALL, 3: ALL}) == Settled(frozenset({0, 2, 3}), ALL)
    step = judge({0: ALL, 1: ALL - {"d00", "d01"}, 2: ALL, 3: ALL})
    assert step == CheckAgain(frozenset(range(4)), ALL - {"d00", "d01"})


def test_never_fewer_than_q_clerks_remain() -> None:
    slander = ALL - {"d00", "d01", "d02"}
    step = judge({0: ALL, 1: slander, 2: ALL - {"d05", "d06", "d07"}, 3: ALL})
    assert isinstance(step, CheckAgain)
    assert len(step.committee) == 3
    assert step.committee == {0, 1, 3}, "ties: the highest position leaves"


def test_a_clerk_leaves_when_that_lifts_the_set_to_what_was_promised() -> None:
    assert judge({0: ALL, 1: ALL - {"d00"}, 2: ALL, 3: ALL}, least=20) == Settled(frozenset({0, 2, 3}), ALL)
    assert judge({0: ALL - {"d01"}, 1: ALL - {"d00"}, 2: ALL, 3: ALL}, least=20) == TooFewSurvivors(
        ALL - {"d00", "d01"}
    )


def test_clerks_cannot_bring_in_strangers() -> None:
    all_devices = {at: ALL | {"sybil"} for at in range(4)}
    assert judge(all_devices) == Settled(frozenset(range(4)), ALL)
    assert may_join(ALL, ALL - {"d00"})
    assert not may_join(ALL - {"d00"}, ALL)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sets(st.sampled_from(sorted(ALL)), min_size=8), min_size=3, max_size=4), st.integers(3, 12))
def test_the_whole_committee_can_serve_the_settled_survivors(served: list[set[str]], least: int) -> None:
    """Ready checks continue until they settle or fail; the set only shrinks and every clerk in Q serves all of it."""
    ready = {at: frozenset(devices) for at, devices in enumerate(served)}
    candidates, asked = ALL, frozenset(ready)
    for _ in range(4):
        step = judge_ready_checks(
            {at: ready[at] & candidates for at in asked}, asked, candidates, least=least, quorum=3, patience_over=False
        )
        if not isinstance(step, CheckAgain):
            break
        assert step.candidates < candidates
        candidates, asked = step.candidates, step.committee
    if isinstance(step, Settled):
        assert len(step.committee) >= 3
        assert len(step.survivors) >= least
        assert all(step.survivors <= ready[at] for at in step.committee)
    else:
        assert isinstance(step, TooFewSurvivors)
        assert len(step.common) < least


# --- votes ------------------------------------------------------------------------------------------------------------


def answers(
    clerks: int, threshold: int, lies: dict[int, dict[int, bytes]], there: list[int]
) -> dict[int, dict[int, bytes]]:
    return {at: {k: lies.get(at, {}).get(k, b"true") for k in held_shares(clerks, threshold, at)} for at in there}


@pytest.mark.parametrize("liar", range(4))
@pytest.mark.parametrize("share", range(4))
def test_with_four_clerks_answering_a_liar_is_outvoted_and_named(liar: int, share: int) -> None:
    reported = answers(4, 2, {liar: {share: b"false"}}, [0, 1, 2, 3])
    votes = count_votes(reported, 4, 2)
    if share in reported[liar]:
        assert votes.outvoted == {liar}
    assert votes.believed(unchecked=False) == dict.fromkeys(range(4), b"true")


@pytest.mark.parametrize("lost", range(4))
def test_with_three_answering_a_lie_is_noticed_and_never_folded(lost: int) -> None:
    there = [at for at in range(4) if at != lost]
    for liar in there:
        for lied in (k for size in (1, 2, 3) for k in combinations(held_shares(4, 2, liar), size)):
            votes = count_votes(answers(4, 2, {liar: dict.fromkeys(lied, b"false")}, there), 4, 2)
            believed = votes.believed(unchecked=True)
            assert believed is None or set(believed.values()) == {b"true"}
            assert votes.outvoted <= {liar}
            if believed is not None and votes.outvoted == frozenset():
                raise AssertionError("a lie went unnoticed")


@pytest.mark.parametrize(("clerks", "threshold", "bad"), [(3, 2, 1), (4, 2, 1), (5, 3, 2), (7, 3, 2)])
def test_liars_never_get_an_honest_clerk_named(clerks: int, threshold: int, bad: int) -> None:
    """Every set of t − 1 liars telling the same lie about many sets of two shares, any m − q clerks lost."""
    missing = clerks - ((clerks + threshold - 1) // 2 + 1)
    for liars in combinations(range(clerks), bad):
        for lost in combinations(range(clerks), missing):
            there = [at for at in range(clerks) if at not in lost]
            shares = sorted({k for at in liars for k in held_shares(clerks, threshold, at)})
            pairs = list(combinations(shares, 2))
            for lied in pairs[:: 1 + len(pairs) // 12]:
                lies = {at: dict.fromkeys(lied, b"false") for at in liars}
                votes = count_votes(answers(clerks, threshold, lies, there), clerks, threshold)
                assert votes.outvoted <= set(liars)
                assert set(votes.checked.values()) <= {b"true"}


def test_two_liars_of_five_can_have_a_wrong_share_taken_but_only_unchecked() -> None:
    """A share of (5, 3) has three holders: two that tell the same lie are a majority, never t alike."""
    holders = [at for at in range(5) if 0 in held_shares(5, 3, at)]
    lies = {at: {0: b"false"} for at in holders[:2]}
    votes = count_votes(answers(5, 3, lies, list(range(5))), 5, 3)
    assert votes.outvoted == frozenset()
    assert votes.majority == {0: b"false"}
    assert votes.believed(unchecked=False) is None


def test_a_share_of_one_clerk_alone_counts_only_unchecked() -> None:
    reported = answers(3, 2, {}, [0, 1, 2])
    del reported[2][0]
    votes = count_votes(reported, 3, 2)
    assert votes.majority == {0: b"true"}
    assert votes.believed(unchecked=True) == dict.fromkeys(range(3), b"true")
    assert votes.believed(unchecked=False) is None


def test_an_outvoted_clerk_is_believed_on_no_share() -> None:
    reported = {0: {1: b"a", 2: b"a", 3: b"a"}, 1: {0: b"a", 2: b"a", 3: b"a"}, 2: {0: b"z", 1: b"a", 3: b"z"}}
    votes = count_votes(reported, 4, 2)
    assert votes.outvoted == {2}
    assert votes.believed(unchecked=True) == dict.fromkeys(range(4), b"a")
    assert set(votes.checked) == {2, 3}


def test_two_values_of_t_clerks_each_leave_a_share_unsettled_without_blame() -> None:
    reported = {0: {1: b"a"}, 2: {1: b"a"}, 3: {1: b"b"}, 1: {1: b"b"}}
    votes = count_votes(reported, 4, 2)
    assert votes.outvoted == frozenset()
    assert 1 in votes.unsettled


def test_an_answer_tells_exactly_the_shares_its_clerk_holds() -> None:
    assert is_whole_answer(1, [0, 3, 2], 4, 2)
    assert not is_whole_answer(1, [0, 1, 2], 4, 2)
    assert not is_whole_answer(1, [0, 2], 4, 2)


# --- conduct ----------------------------------------------------------------------------------------------------------


def test_t_clerks_must_fault_a_device_for_something_it_did() -> None:
    assert rejected_devices({0: {"a": "seed", "b": "seed", "c": "company"}, 1: {"a": "letter", "c": "company"}}, 2) == {
        "a"
    }
    assert rejected_devices({0: {"a": "seed"}}, 2) == frozenset()
