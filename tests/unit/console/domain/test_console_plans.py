"""Drawings of plans, curves of rounds, price history and alerts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from coterie.records import Offer, Participation, Quote, Round, Task
from coterie.records.enums import QuoteStatus, TaskState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.console.domain.alerts import list_alerts
from services.console.domain.graph import MOST_NODES, Graph
from services.console.domain.names import Names
from services.console.domain.network import PLATFORM
from services.console.domain.plans import LEGENDS, describe_move, draw_plan, stations_of
from services.console.domain.prices import course
from services.console.domain.progress import contributions, curves, metric_names, seconds_left
from services.console.domain.visibility import promise, who_sees
from services.gateway.wire.convert import to_json

NAMES = {f"d{n}": f"device {n}" for n in range(6)}


def assignment(device: str, role: str = "solo", **more: Any) -> dict[str, Any]:
    empty = {
        "group": -1,
        "head_device_id": "",
        "noise_multiplier": 0.0,
        "neighbours": [],
        "noised": False,
        "batch_size": 0,
        "block": -1,
        "upload_seconds": 0.0,
    }
    return {"device_id": device, "role": role} | empty | more


def plan(topology: str, *assignments: dict[str, Any], **details: Any) -> dict[str, Any]:
    return {"topology": topology, "assignments": list(assignments), "details": details, "version": 1}


def test_clusters_are_drawn_with_heads_and_dashed_noised_members() -> None:
    drawing = draw_plan(
        plan(
            "clusters",
            assignment("d0", "head", group=0, head_device_id="d0"),
            assignment("d1", "member", group=0, head_device_id="d0"),
            assignment("d2", "member", group=0, head_device_id="d0", noise_multiplier=0.3),
            assignment("d3", "solo", noise_multiplier=0.6),
        ),
        None,
        NAMES,
    )
    assert [node.id for node in drawing.nodes if node.ring] == ["d0"]
    assert {(link.a, link.b): link.style for link in drawing.links} == {("d1", "d0"): "solid", ("d2", "d0"): "dashed"}
    assert drawing.summary == "4 devices: 1 cluster with a head, 1 device unclustered"


def test_a_blocking_move_names_the_device_and_its_target() -> None:
    names = Names({key: {"name": name} for key, name in NAMES.items()})
    assert (
        describe_move({"device": "d0", "to": ["d1", "d2"]}, names)
        == "device 0 would gain by joining device 1, device 2"
    )
    assert describe_move({"device": "d0", "to": []}, names) == "device 0 would gain by leaving its cluster"


def test_a_mesh_link_is_drawn_once_in_the_tone_of_its_trust() -> None:
    def to(other: str, trusted: bool) -> dict[str, Any]:
        return {"device_id": other, "trusted": trusted, "link_seconds": 0.01, "weight": 0.5}

    drawing = draw_plan(
        plan(
            "mesh",
            assignment("d0", "peer", neighbours=[to("d1", True)]),
            assignment("d1", "peer", neighbours=[to("d0", True), to("d2", False)], noised=True),
            assignment("d2", "peer", neighbours=[to("d1", False)], noised=True),
        ),
        None,
        NAMES,
    )
    assert {frozenset((link.a, link.b)): link.tone for link in drawing.links} == {
        frozenset(("d0", "d1")): "good",
        frozenset(("d1", "d2")): "warn",
    }
    assert drawing.summary == "3 devices, 2 links, 2 devices add noise"


def test_cells_serve_devices_on_blocks_and_others_wait() -> None:
    drawing = draw_plan(
        plan(
            "cells",
            assignment("d0", group=0, block=1, upload_seconds=0.25),
            assignment("d1", "idle"),
            cells=[{"id": "roof", "blocks": 2, "served": 1}],
        ),
        None,
        NAMES,
    )
    assert [(link.a, link.b) for link in drawing.links] == [("d0", "cell:0")]
    assert next(node for node in drawing.nodes if node.id == "d1").about == "waits this round"


def test_cells_show_which_stations_decided() -> None:
    given = plan(
        "cells",
        assignment("d0", group=0, block=0),
        assignment("d1", group=0, block=1),
        assignment("d2", group=1, block=0),
        cells=[{"id": cell, "blocks": 2, "served": served} for cell, served in (("roof", 2), ("hill", 1), ("dale", 0))],
        q_values={"roof": -12.5},
        lost={"dale": "its station is lost"},
    )
    assert [(row.cell, row.has_decided, row.explanation) for row in stations_of(given)] == [
        ("roof", True, "its own station decided, with value −12.5"),
        ("hill", False, "the planner decided for it"),
        ("dale", False, "left out: its station is lost"),
    ]
    drawn = {node.name: node for node in draw_plan(given, None, NAMES).nodes}
    assert drawn["roof"].ring
    assert not drawn["hill"].ring
    assert drawn["dale"].about == "0 of 2 blocks in use · left out: its station is lost"


def test_a_star_links_to_the_platform_over_faint_ties_of_trust() -> None:
    ties = [{"device_a": "d0", "device_b": "d1", "direct": 0.5, "relations": []}]
    devices = [{"id": key, "name": name, "owner_id": "o", "kind": "", "state": "active"} for key, name in NAMES.items()]
    graph = Graph.of({"devices": devices, "ties": ties, "at": 0.0})
    drawing = draw_plan(plan("star", assignment("d0"), assignment("d1")), graph, NAMES)
    assert {(link.a, link.b) for link in drawing.links if link.tone == "group"} == {("d0", PLATFORM), ("d1", PLATFORM)}
    assert [(link.a, link.b) for link in drawing.links if link.tone == "faint"] == [("d0", "d1")]


def test_a_plan_of_thousands_is_drawn_as_groups() -> None:
    assignments = [assignment(f"x{n}", "member", group=n // 10, head_device_id=f"x{n // 10 * 10}") for n in range(3000)]
    drawing = draw_plan(plan("clusters", *assignments), None, {})
    assert len(drawing.nodes) == MOST_NODES
    assert "drawn as groups" in drawing.summary


def test_every_kind_of_plan_has_a_legend() -> None:
    assert set(LEGENDS) == {"star", "clusters", "mesh", "cells"}


def a_round(number: int, **metrics: float) -> Round:
    shown = to_json(pb.Round(number=number, opened_at=10.0 * number, done_at=10.0 * number + 4, metrics=metrics))
    return Round.from_json(shown | {"state": "done"})


def a_part(device: str, weight: float) -> Participation:
    return Participation.from_json(to_json(pb.Participation(device_id=device, weight=weight)))


def test_every_metric_has_curves_and_model_lines_share_its_name() -> None:
    rounds = [a_round(1, zeta=1.0, accuracy=0.5), a_round(2, accuracy=0.6, **{"accuracy[0]": 0.7, "accuracy[1]": 0.4})]
    assert metric_names(rounds) == ["accuracy", "zeta"]
    assert curves(rounds, "accuracy") == [
        ("all", [(1.0, 0.5), (2.0, 0.6)]),
        ("model 0", [(2.0, 0.7)]),
        ("model 1", [(2.0, 0.4)]),
    ]
    assert curves(rounds, "nothing") == []


def test_time_left_is_the_median_of_rounds_done_times_rounds_left() -> None:
    shown = to_json(pb.Task(id="tsk_1", specification=pb.TaskSpecification(rounds=5)))
    task = Task.from_json(shown | {"state": "running"})
    assert seconds_left(task, [a_round(1), a_round(2)]) == 12.0
    assert seconds_left(task, []) is None
    assert seconds_left(replace(task, state=TaskState.FINISHED), [a_round(1)]) is None


def test_a_heads_share_excludes_its_members_shares() -> None:
    """A head delivers Σ q of its cluster: 30 = its own 10 and 10 from each of two members."""
    given_ = [a_part(d, w) for d, w in (("d0", 30.0), ("d1", 10.0), ("d2", 10.0), ("d3", 10.0))]
    result = contributions(given_, {"d1": "d0", "d2": "d0"})
    assert result == [("d0", 0.25), ("d1", 0.25), ("d2", 0.25), ("d3", 0.25)]
    assert sum(share for _, share in contributions(given_)) == pytest.approx(1.0)
    assert contributions([a_part("d0", 0.0)]) == []


def test_prices_are_drawn_only_where_something_was_offered() -> None:
    def offer(price: int, expected: float) -> Offer:
        return Offer(
            device_id="dev_1",
            price_microcredits=price,
            external_risk=0.0,
            base_microcredits=0,
            slope_microcredits=0,
            expected=expected,
            most_microcredits=0,
            terms={},
        )

    def quote(number: int, *offers: Offer) -> Quote:
        return Quote(task_id="tsk_1", round=number, offers=offers, status=QuoteStatus.OK, details={})

    charts = course([quote(n, offer(300_000 * n, 0.1), offer(300_000 * n, math.inf)) for n in (1, 2)])
    assert [unit for _, unit, _ in charts] == ["credits per unit of ρ", "ρ"]
    assert charts[0][2][0][1] == [(1.0, 0.3), (2.0, 0.6)]
    assert charts[1][2][0][1] == [(1.0, 0.1), (2.0, 0.1)]
    assert course([quote(1)]) == []


@pytest.mark.parametrize("topology", ["star", "clusters", "mesh", "cells"])
def test_a_task_without_noise_never_claims_protection(topology: str) -> None:
    texts = " ".join(what for _, what in who_sees({"topology": topology, "privacy": "none", "preset": ""}))
    assert "without noise" in texts
    assert "no ε limits" in promise({"privacy": "none", "privacy_unit": "device"})


def test_updates_without_noise_to_trusted_peers_are_disclosed() -> None:
    for spec in (
        {"topology": "clusters", "privacy": "trust", "preset": "clusters"},
        {"topology": "mesh", "privacy": "partial", "preset": "mesh"},
    ):
        assert any("no ε describes" in what for _, what in who_sees(spec))


def test_alerts_carry_reasons_and_come_most_severe_first() -> None:
    def task(state: str, ended_at: float, created_at: float) -> dict[str, Any]:
        times = {"ended_at": ended_at, "created_at": created_at, "enrolled": 1}
        return {"id": f"t-{state}", "state": state, "reason": "too few devices", **times} | {
            "specification": {"name": state, "min_devices": 3}
        }

    device = {"id": "d0", "name": "phone", "owner_id": "o", "key_version": 2, "state": "active", "last_seen_at": 0}
    names = Names({"d0": device}, {"o": {"name": "Ada"}})
    tasks = [task("failed", 9_000.0, 0.0), task("created", 0.0, 0.0), task("finished", 9_500.0, 0.0)]
    result = list_alerts(tasks, names, ["odd", "odder"], now=10_000.0, recent_seconds=5_000.0)
    assert [item.title for item in result] == [
        "failed failed",
        "phone changed its keys",
        "2 payments look odd",
        "created is waiting for devices",
    ]
    assert result[0].what == "too few devices"
    assert "Ada" in result[1].what
    assert list_alerts(tasks[:1], Names(), [], now=20_000.0, recent_seconds=5_000.0) == []


def test_a_disputed_verdict_raises_an_alert_for_at_most_a_week() -> None:
    task = {"id": "tsk_1", "specification": {"name": "digits"}, "state": "running", "ended_at": 0.0}
    event = {"device_id": "dev_a", "round": 3, "at": 9_000.0, "message": "says of dev_h's verdict: it came in time"}
    event["kind"] = "verdict.disputed"
    names = Names({"dev_a": {"name": "phone", "key_version": 1, "state": "active"}})
    (result,) = list_alerts([task], names, [], now=10_000.0, recent_seconds=5_000.0, events=[(task, event)])
    assert (result.title, result.href, result.at) == ("phone disputes a verdict in digits", "/tasks/tsk_1", 9_000.0)
    assert result.what == "Round 3: it says of dev_h's verdict: it came in time"
    assert list_alerts([task], names, [], now=20_000.0, recent_seconds=5_000.0, events=[(task, event)]) == []
