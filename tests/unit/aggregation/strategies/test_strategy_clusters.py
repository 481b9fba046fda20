"""Rounds in clusters: whose work counts, which heads are lost, and whose conduct is recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from coterie.records.enums import ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.records import Participation
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.strategies import strategy_for
from services.aggregation.strategies.clusters import Clusters
from services.aggregation.strategies.roster import Roster
from services.kit.rpc.enums import number

CLUSTERS = Clusters(TaskSpecification("t", topology="clusters", privacy="trust", incentive="payoff", seed=1))
HEAD_OF = {"b": "a", "c": "a"}


def part(device: str, state: str, *heads: str) -> Participation:
    item = pb.WorkItem(role=words.ROLE_MEMBER, peers=[pb.Peer(device_id=head, role=words.ROLE_HEAD) for head in heads])
    return Participation("tsk", 1, device, "own", Role.MEMBER, ParticipationState(state), 10, item.SerializeToString())


def roster(
    states: Mapping[str, str], heard: Mapping[str, tuple[str, str]] = {}, heads: Mapping[str, str] = HEAD_OF
) -> Roster:
    delivery = {device: (ParticipationState(outcome), note) for device, (outcome, note) in heard.items()}
    return Roster(
        {}, {d: ParticipationState(state) for d, state in states.items()}, {}, relayed_by=dict(heads), reports=delivery
    )


def lost_heads(states: Mapping[str, str], *, overdue: bool, unreachable: Collection[str] = ()) -> dict[str, list[str]]:
    return CLUSTERS.progress.lost_relays(roster(states), overdue=overdue, unreachable=unreachable)


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
    assert CLUSTERS.progress.effective_state(roster({"a": head, "b": member}, heard), "b") == expected


def test_devices_without_a_head_are_what_they_are() -> None:
    assert CLUSTERS.progress.effective_state(roster({"a": "delivered"}), "a") == "delivered"


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
    participations = [part("a", "delivered"), part("b", "delivered"), part("c", "delivered"), part("d", "delivered")]
    seen = roster({}, {"b": ("delivered", ""), "c": ("rejected", "its update is zero")}, HEAD_OF | {"d": "x"})
    result = {p.device_id: (p.state, p.note) for p in CLUSTERS.combination.outcomes(seen, participations)}
    assert result == {
        "a": ("delivered", ""),
        "b": ("delivered", ""),
        "c": ("rejected", "by its head: its update is zero"),
        "d": ("orphaned", "its head x delivered nothing"),
    }


def test_member_counts_once_its_letter_was_taken_even_without_a_report() -> None:
    participations = [part("a", "delivered"), part("b", "assigned"), part("c", "assigned")]
    seen = roster({}, {"b": ("delivered", "")})
    states = {p.device_id: p.state for p in CLUSTERS.combination.outcomes(seen, participations)}
    assert states == {"a": "delivered", "b": "delivered", "c": "dropped"}


def test_conduct_is_recorded_within_clusters_only() -> None:
    delivery = {"b": ["a"], "c": ["a"], "e": ["d", "gone"]}
    participations = [part(device, "delivered", *delivery.get(device, [])) for device in "abcdef"]
    pairs = CLUSTERS.settlement.witnesses(participations, 1)
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c"), ("d", "e")]
    lost = CLUSTERS.settlement.witnesses([*participations, part("gone", "dropped")], 1)
    assert set(lost) - set(pairs) == {("e", "gone")}


def paid(device: str, state: str, quality: float, version: int = 1, head: str = "") -> Participation:
    peers = [pb.Peer(device_id=head, role=words.ROLE_HEAD)] if head else []
    role = Role.MEMBER if head else Role.HEAD
    item = pb.WorkItem(role=number(role), self_weight=quality, plan_version=version, peers=peers)
    return Participation("tsk", 1, device, "own", role, ParticipationState(state), 10, item.SerializeToString())


def test_payoffs_are_those_of_the_clusters_as_they_came_about() -> None:
    """b dropped out of a's cluster; c, left by its head, delivered under a second plan with the same game."""
    participations = [
        paid("a", "delivered", 30.0),
        paid("b", "dropped", 20.0, head="a"),
        paid("c", "delivered", 10.0, 2, "d"),
        paid("d", "delivered", 11.0, 2),
        paid("e", "delivered", 12.0, head="a"),
    ]
    plans = {
        version: topology.Plan(
            assignments=[topology.Assignment(device_id=device, solo_payoff=worth) for device, worth in alone.items()],
            game_parameters=topology.GameParameters(price=float(version)),
        )
        for version, alone in ((1, {"a": 1.0, "b": 2.0, "e": 5.0}), (2, {"c": 3.0, "d": 4.0}))
    }
    assert CLUSTERS.settlement.required_plans(participations) == {1, 2}
    delivery = CLUSTERS.settlement.payoffs(participations, plans)
    assert delivery is not None
    result = {
        cluster.head_device_id: (
            cluster.game_parameters.price,
            {member.device_id: (member.quality, member.solo_payoff) for member in cluster.members},
        )
        for cluster in delivery.clusters
    }
    assert result == {
        "a": (1.0, {"a": (30.0, 1.0), "e": (12.0, 5.0)}),
        "d": (2.0, {"c": (10.0, 3.0), "d": (11.0, 4.0)}),
    }


def test_how_payoffs_are_paid_is_as_the_task_says() -> None:
    text = '{"pricing": {"credits_per_point": 0.25, "round_microcredits": 7}}'
    for incentive, expected in (("payoff", (0.25, 0)), ("stackelberg", (0.25, 7))):
        spec = TaskSpecification("t", topology="clusters", privacy="trust", incentive=incentive, parameters_json=text)
        payoffs = strategy_for(spec).settlement.payoffs([], {})
        assert payoffs is not None
        assert (payoffs.credits_per_point, payoffs.pot_microcredits) == expected
    free = strategy_for(TaskSpecification("t", topology="clusters", privacy="trust", incentive="none"))
    assert free.settlement.payoffs([paid("a", "delivered", 1.0)], {}) is None
    assert free.settlement.required_plans([paid("a", "delivered", 1.0)]) == set()
