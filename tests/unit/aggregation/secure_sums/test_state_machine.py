"""The state machine of a secure sum: every state, every event, any time."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.records.enums import ClerkState, SumState
from coterie.secure_sums.masks import held_shares
from coterie.secure_sums.protocol_lists import Candidate, candidates_text, list_digest, survivors_text
from coterie.secure_sums.terms import Terms
from services.aggregation.domain.sum_sessions import CommitteeMember, Share, SumSession
from services.aggregation.secure_sums.state_machine import (
    BeginReadyCheck,
    ExtendDeliveries,
    Facts,
    Fail,
    FixSurvivors,
    OpenForDeliveries,
    RepeatReadyCheck,
    SelectCommittee,
    Step,
    Unmask,
    Wait,
    next_step,
)
from tests.attacks.sum_fixture import SumFixture, keys_of, owner_of

CLERK_SECONDS, OFFER_SECONDS, DEVICES = 40.0, 20.0, 8
FACTS = Facts(began_at=0.0, offer_seconds=OFFER_SECONDS, clerk_seconds=CLERK_SECONDS, pending=DEVICES)
ALLOWED: dict[SumState, tuple[type[Step], ...]] = {
    SumState.SELECTING: (Wait, SelectCommittee, OpenForDeliveries),
    SumState.OPEN: (Wait, BeginReadyCheck, ExtendDeliveries, Fail),
    SumState.COUNTING: (Wait, RepeatReadyCheck, FixSurvivors, Unmask, Fail),
}
ROOT = bytes(32)


@functools.cache
def terms() -> Terms:
    with tempfile.TemporaryDirectory() as folder:
        return SumFixture(Path(folder)).terms()


def people() -> list[str]:
    return [f"dev_{number:02d}" for number in range(DEVICES)]


def listed() -> str:
    return candidates_text(Candidate(device, ROOT, ROOT, ROOT, bytes(64)) for device in people())


def session(state: SumState, **changes: Any) -> SumSession:
    made = SumSession(
        task_id="tsk_1",
        round=1,
        cohort=0,
        session_number=1,
        state=state,
        attempt=1,
        since=100.0,
        deadline_at=100.0 + CLERK_SECONDS,
        clip_norm=1.0,
        noise_multiplier=0.0,
        heaviest=1.0,
        participants="[]",
        terms="" if state is SumState.SELECTING else terms().text,
        candidates=listed() if state is SumState.COUNTING else "",
        asked=(0, 1, 2, 3) if state is SumState.COUNTING else (),
    )
    return dataclasses.replace(made, **changes)


def member(at: int, **changes: Any) -> CommitteeMember:
    device = people()[at]
    made = CommitteeMember(
        *("tsk_1", 1, 0, 1, device, owner_of(device)),
        keys_of(device).public().signing.hex(),
        ClerkState.SERVING,
        position=at,
        selected_at=100.0,
    )
    return dataclasses.replace(made, **changes)


def ready(position: int, devices: Sequence[str] | None = None) -> CommitteeMember:
    return member(position, checked_list=list_digest(listed()), ready=people() if devices is None else list(devices))


def committed(position: int) -> CommitteeMember:
    return dataclasses.replace(ready(position), commit_signature="ab" * 64)


def answered(position: int, digest: str = "11" * 32) -> CommitteeMember:
    return dataclasses.replace(
        committed(position), answer={str(share): digest for share in held_shares(4, 2, position)}
    )


def fixed() -> SumSession:
    return session(SumState.COUNTING, survivors=survivors_text([(device, ROOT) for device in people()]), digest="aa")


def shares(digest: str = "11" * 32) -> dict[int, Share]:
    return {share: Share("tsk_1", 1, 0, 1, share, people()[0], 100.0, digest) for share in range(4)}


# --- one path through all states --------------------------------------------------------------------------------------


def test_a_session_without_committee_selects_one() -> None:
    assert next_step(session(SumState.SELECTING), [], 100.0, FACTS) == SelectCommittee((), ())


def test_selection_waits_for_keys_then_replaces_silent_clerks_alone() -> None:
    prompt, late = member(0, position=-1, session_key="aa"), member(1, position=-1)
    assert next_step(session(SumState.SELECTING), [prompt, late], 105.0, FACTS) == Wait(15.0)
    assert next_step(session(SumState.SELECTING), [prompt, late], 120.0, FACTS) == SelectCommittee(
        (prompt, late), (late,)
    )


def test_time_before_the_process_began_counts_against_no_clerk() -> None:
    late, facts = member(1, position=-1), dataclasses.replace(FACTS, began_at=130.0)
    assert next_step(session(SumState.SELECTING), [late], 140.0, facts) == Wait(10.0)


def test_a_session_opens_when_every_serving_clerk_has_offered_a_key() -> None:
    clerks = [member(at, position=-1, session_key=f"{at}") for at in range(4)]
    released = member(4, position=-1, state=ClerkState.RELEASED)
    assert next_step(session(SumState.SELECTING), [*clerks, released], 101.0, FACTS) == OpenForDeliveries(tuple(clerks))


@pytest.mark.parametrize(
    ("delivered", "pending", "now", "step"),
    [
        (5, 3, 110.0, Wait(30.0)),
        (8, 0, 110.0, BeginReadyCheck()),
        (5, 3, 140.0, BeginReadyCheck()),
        (3, 5, 140.0, ExtendDeliveries("3 of 4 updates needed came")),
        (1, 2, 110.0, Fail("5 of 8 devices declined, and 4 are needed")),
    ],
)
def test_an_open_session_counts_extends_or_fails(delivered: int, pending: int, now: float, step: Step) -> None:
    facts = dataclasses.replace(FACTS, delivered=delivered, pending=pending, declined=8 - delivered - pending)
    assert next_step(session(SumState.OPEN), [], now, facts) == step


def test_equal_ready_checks_fix_survivors_and_unequal_ones_repeat() -> None:
    same = next_step(session(SumState.COUNTING), [ready(at) for at in range(4)], 101.0, FACTS)
    assert isinstance(same, FixSurvivors)
    assert same.settled.survivors == frozenset(people())
    unequal = [ready(0, people()[1:]), *(ready(at) for at in (1, 2, 3))]
    again = next_step(session(SumState.COUNTING), unequal, 101.0, FACTS)
    assert isinstance(again, RepeatReadyCheck)
    assert again.check.candidates == frozenset(people()[1:])


def test_ready_check_closes_at_a_quarter_with_quorum_and_fails_without() -> None:
    three, two = [ready(at) for at in range(3)], [ready(at) for at in range(2)]
    late = [member(2), member(3)]
    assert next_step(session(SumState.COUNTING), [*three, member(3)], 109.0, FACTS) == Wait(1.0)
    assert isinstance(next_step(session(SumState.COUNTING), [*three, member(3)], 110.0, FACTS), FixSurvivors)
    assert next_step(session(SumState.COUNTING), [*two, *late], 110.0, FACTS) == Wait(30.0)
    failed = next_step(session(SumState.COUNTING), [*two, *late], 140.0, FACTS)
    assert failed == Fail("2 clerks reported whom they can serve, 3 must", tuple(late))


def test_without_a_quorum_of_commits_no_share_is_awaited() -> None:
    clerks = [committed(0), committed(1), ready(2), ready(3)]
    assert next_step(fixed(), clerks, 120.0, FACTS) == Wait(20.0)
    failed = next_step(fixed(), clerks, 140.0, FACTS)
    assert failed == Fail("2 clerks committed to the survivors, 3 must", (clerks[2], clerks[3]))


def test_equal_shares_unmask_and_a_lie_never_does_silently() -> None:
    clerks = [answered(at) for at in range(4)]
    assert isinstance(next_step(fixed(), clerks, 110.0, FACTS), Wait)  # the words of the shares are missing
    stored = dataclasses.replace(FACTS, shares=shares())
    step = next_step(fixed(), clerks, 110.0, stored)
    assert isinstance(step, Unmask)
    assert (step.votes.outvoted, step.silent) == (frozenset(), ())
    liar = next_step(fixed(), [*clerks[:3], answered(3, "22" * 32)], 110.0, stored)
    assert isinstance(liar, Unmask)
    assert liar.votes.outvoted == {3}
    split = [answered(0), answered(1), answered(2, "22" * 32), answered(3, "22" * 32)]
    assert isinstance(next_step(fixed(), split, 140.0, stored), Fail)


def test_a_clerk_without_answer_is_silent_at_the_end_alone() -> None:
    stored = dataclasses.replace(FACTS, shares=shares())
    step = next_step(fixed(), [*(answered(at) for at in range(3)), committed(3)], 140.0, stored)
    assert isinstance(step, Unmask)
    assert step.silent == (committed(3),)


# --- every state and event --------------------------------------------------------------------------------------------

MEMBERS = st.tuples(
    *(
        st.sampled_from(
            [
                member(at),
                member(at, state=ClerkState.SILENT),
                member(at, session_key=f"{at}" * 64),
                ready(at),
                ready(at, people()[:6]),
                ready(at, people()[:2]),
                committed(at),
                answered(at),
                answered(at, "22" * 32),
            ]
        )
        for at in range(4)
    )
)
SESSIONS = st.sampled_from(
    [*(session(state) for state in SumState if state is not SumState.COUNTING)]
) | st.sampled_from([session(SumState.COUNTING), session(SumState.COUNTING, asked=(0, 1, 2)), fixed()])
COUNTS = st.tuples(st.integers(0, DEVICES), st.integers(0, DEVICES)).filter(lambda counts: sum(counts) <= DEVICES)


def facts_of(counts: tuple[int, int], *, stored: bool, began_at: float = 0.0) -> Facts:
    return dataclasses.replace(
        FACTS,
        began_at=began_at,
        delivered=counts[0],
        pending=counts[1],
        declined=DEVICES - sum(counts),
        shares=shares() if stored else {},
    )


@given(SESSIONS, MEMBERS, COUNTS, st.booleans(), st.floats(0.0, 1e6))
def test_every_state_has_a_step_of_its_own_kind(
    given_session: SumSession, members: Any, counts: tuple[int, int], stored: bool, now: float
) -> None:
    """The step is repeatable, a pause is positive, and no state steps like another."""
    facts = facts_of(counts, stored=stored)
    step = next_step(given_session, members, now, facts)
    assert isinstance(step, ALLOWED.get(given_session.state, (Wait,)))
    assert step == next_step(given_session, members, now, facts)
    assert not isinstance(step, Wait) or step.seconds > 0.0
    if isinstance(step, Fail | Unmask):
        assert {member.device_id for member in step.silent} <= {member.device_id for member in members}


@given(SESSIONS, MEMBERS, COUNTS, st.booleans(), st.floats(0.0, 1e3))
def test_no_live_state_waits_for_ever(
    given_session: SumSession, members: Any, counts: tuple[int, int], stored: bool, began_at: float
) -> None:
    """With all time over a live session moves, whatever its members did; a session that is over waits."""
    facts = facts_of(counts, stored=stored, began_at=began_at)
    step = next_step(given_session, members, 1e6, facts)
    assert isinstance(step, Wait) == (given_session.state not in ALLOWED)


@given(SESSIONS, MEMBERS, COUNTS, st.booleans(), st.floats(100.0, 300.0))
def test_after_the_time_of_a_wait_a_step_or_a_later_wait_is_due(
    given_session: SumSession, members: Any, counts: tuple[int, int], stored: bool, now: float
) -> None:
    """A wait is no longer than the time that is left, so a coordinator that sleeps misses nothing."""
    facts = facts_of(counts, stored=stored)
    step = next_step(given_session, members, now, facts)
    if isinstance(step, Wait) and given_session.state in ALLOWED:
        earlier = next_step(given_session, members, now + 0.999 * step.seconds, facts)
        assert isinstance(earlier, Wait)


@given(st.permutations(range(4)), st.integers(0, 4), st.integers(0, 4))
def test_more_from_the_committee_never_moves_a_count_back(order: list[int], fewer: int, more: int) -> None:
    """Ready checks, commits and answers that arrive in any order only bring the session nearer to its end."""
    rank: dict[type[Step], int] = {Wait: 0, RepeatReadyCheck: 1, FixSurvivors: 1, Unmask: 1}
    low, high = sorted((fewer, more))
    stored = dataclasses.replace(FACTS, shares=shares())
    for base, done in ((ready, committed), (committed, answered), (member, ready)):
        given_session = session(SumState.COUNTING) if done is ready else fixed()
        steps = [
            next_step(given_session, [done(at) if at in order[:count] else base(at) for at in range(4)], 101.0, stored)
            for count in (low, high)
        ]
        assert rank[type(steps[0])] <= rank[type(steps[1])]
