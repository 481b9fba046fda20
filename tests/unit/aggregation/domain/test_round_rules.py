"""Rounds: when they close, who takes part, who witnesses whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.records.enums import ParticipationState
from services.aggregation.domain.rounds import (
    WITNESSES,
    Standing,
    Verdict,
    choose_participants,
    conduct_of,
    judge,
    missing_of,
    witness_pairs,
)


@pytest.mark.parametrize(
    ("delivered", "pending", "now", "attempt", "verdict"),
    [
        (3, 2, 5.0, 1, Verdict.WAIT),  # quorum met, but others may still come
        (5, 0, 5.0, 1, Verdict.CLOSE),  # no device left to wait for
        (4, 1, 10.0, 1, Verdict.CLOSE),  # the deadline has come and the quorum is met
        (2, 3, 10.0, 1, Verdict.REOPEN),  # the deadline has come and it is not
        (2, 3, 10.0, 3, Verdict.FAIL),  # and all attempts are used
        (1, 1, 5.0, 1, Verdict.REOPEN),  # the quorum is out of reach: no use waiting
        (2, 0, 5.0, 3, Verdict.FAIL),
        (0, 5, 9.9, 3, Verdict.WAIT),
    ],
)
def test_an_open_round_is_judged(delivered: int, pending: int, now: float, attempt: int, verdict: Verdict) -> None:
    standing = Standing(delivered, pending, quorum=4, deadline_at=10.0, attempt=attempt, max_attempts=3)
    if verdict is Verdict.WAIT and delivered == 3:
        standing = Standing(delivered, pending, quorum=3, deadline_at=10.0, attempt=attempt, max_attempts=3)
    assert judge(standing, now) is verdict


@given(st.sets(st.text("abc", min_size=1, max_size=6), min_size=1), st.integers(0, 20), st.integers(0, 2**62))
def test_participants_are_the_same_on_every_replica(devices: set[str], most: int, seed: int) -> None:
    """The draw depends on the set, the seed and the round, never on the order devices came in."""
    one = choose_participants(sorted(devices), most, seed, 3)
    two = choose_participants(sorted(devices, reverse=True), most, seed, 3)
    assert one == two
    assert set(one) <= devices
    assert len(one) == (min(most, len(devices)) if most else len(devices))


@given(st.integers(0, 40), st.integers(0, 1000))
def test_each_device_is_witnessed_by_enough_and_few(count: int, seed: int) -> None:
    """Each device meets min(WITNESSES, others) co-participants, no pair twice, no device itself."""
    devices = [f"d{i:02}" for i in range(count)]
    pairs = witness_pairs(devices, seed, 1)
    assert len(set(pairs)) == len(pairs)
    assert all(a < b for a, b in pairs)
    for device in devices:
        met = sum(device in pair for pair in pairs)
        assert met == min(WITNESSES, count - 1)


def test_two_that_both_failed_give_no_conduct() -> None:
    ends = {"a": "delivered", "b": "delivered", "c": "late", "d": "rejected", "e": "orphaned"}
    states = {device: ParticipationState(end) for device, end in ends.items()}
    pairs = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "e"), ("d", "e")]
    assert conduct_of(pairs, states) == [
        ("a", "b", ParticipationState.DELIVERED),
        ("a", "c", ParticipationState.LATE),
        ("b", "d", ParticipationState.REJECTED),
        ("d", "e", ParticipationState.REJECTED),
    ]


def test_a_missed_quorum_says_how_many_did_what() -> None:
    states = [ParticipationState(item) for item in ("delivered", "declined", "declined", "rejected", "assigned")]
    assert missing_of(states) == " (1 sent nothing, 2 declined, 1 refused)"
    assert missing_of([ParticipationState.DELIVERED]) == ""
