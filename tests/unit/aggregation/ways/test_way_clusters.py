"""Rounds in clusters: whose work counts, which heads are lost, and whose conduct is recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.records import Participation
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.ways.base import Roster
from services.aggregation.ways.clusters import Clusters

WAY = Clusters(TaskSpecification("t", topology="clusters", privacy="trust", incentive="payoff", seed=1))
HEAD_OF = {"b": "a", "c": "a"}


def part(device: str, state: str, *heads: str) -> Participation:
    item = pb.WorkItem(role="member", peers=[pb.Peer(device_id=head, role="head") for head in heads])
    return Participation("tsk", 1, device, "own", "member", state, 10, item.SerializeToString())


def roster(
    states: Mapping[str, str], heard: Mapping[str, tuple[str, str]] = {}, heads: Mapping[str, str] = HEAD_OF
) -> Roster:
    return Roster({}, dict(states), {}, via=dict(heads), heard=dict(heard))


def lost_heads(states: Mapping[str, str], *, overdue: bool, unreachable: Collection[str] = ()) -> dict[str, list[str]]:
    return WAY.lost(roster(states), overdue=overdue, unreachable=unreachable)


@pytest.mark.parametrize(
    ("head", "member", "outcome", "expected"),
    [
        ("assigned", "delivered", "", "assigned"),
        ("assigned", "assigned", "", "assigned"),
        ("delivered", "delivered", "delivered", "delivered"),
        ("delivered", "assigned", "delivered", "assigned"),  # its report is still under way
        ("delivered", "delivered", "rejected", "rejected"),
        ("delivered", "assigned", "", "dropped"),
        ("dropped", "delivered", "", "orphaned"),
        ("declined", "assigned", "", "orphaned"),
        ("delivered", "declined", "", "declined"),
    ],
)
def test_a_members_state_depends_on_its_heads(head: str, member: str, outcome: str, expected: str) -> None:
    heard = {"b": (outcome, "")} if outcome else {}
    assert WAY.state_of(roster({"a": head, "b": member}, heard), "b") == expected


def test_devices_without_a_head_are_what_they_are() -> None:
    assert WAY.state_of(roster({"a": "delivered"}), "a") == "delivered"


def test_a_head_is_lost_when_it_says_so_or_is_overdue_or_out_of_reach() -> None:
    states = {"a": "assigned", "b": "delivered", "c": "assigned"}
    assert lost_heads(states, overdue=False) == {}
    assert lost_heads(states, overdue=True) == {"a": ["b", "c"]}
    assert lost_heads(states, overdue=False, unreachable={"a"}) == {"a": ["b", "c"]}
    assert lost_heads(states | {"a": "declined"}, overdue=False) == {"a": ["b", "c"]}
    assert lost_heads(states | {"a": "delivered"}, overdue=True, unreachable={"a"}) == {}


def test_a_head_whose_members_have_all_left_is_no_loss() -> None:
    states = {"a": "declined", "b": "declined", "c": "dropped"}
    assert lost_heads(states, overdue=True) == {}


def test_verdicts_follow_the_heads_report() -> None:
    everybody = [part("a", "delivered"), part("b", "delivered"), part("c", "delivered"), part("d", "delivered")]
    seen = roster({}, {"b": ("delivered", ""), "c": ("rejected", "its update is zero")}, HEAD_OF | {"d": "x"})
    found = {p.device_id: (p.state, p.note) for p in WAY.verdicts(seen, everybody)}
    assert found == {
        "a": ("delivered", ""),
        "b": ("delivered", ""),
        "c": ("rejected", "by its head: its update is zero"),
        "d": ("orphaned", "its head x delivered nothing"),
    }


def test_a_member_whose_letter_was_taken_counts_even_if_its_own_report_never_came() -> None:
    everybody = [part("a", "delivered"), part("b", "assigned"), part("c", "assigned")]
    seen = roster({}, {"b": ("delivered", "")})
    states = {p.device_id: p.state for p in WAY.verdicts(seen, everybody)}
    assert states == {"a": "delivered", "b": "delivered", "c": "dropped"}


def test_conduct_is_recorded_within_clusters_only() -> None:
    told = {"b": ["a"], "c": ["a"], "e": ["d", "gone"]}
    everybody = [part(device, "delivered", *told.get(device, [])) for device in "abcdef"]
    pairs = WAY.witnesses(everybody, 1)
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c"), ("d", "e")]
    lost = WAY.witnesses([*everybody, part("gone", "dropped")], 1)
    assert set(lost) - set(pairs) == {("e", "gone")}
