"""Which deliveries each way takes, and with what weight: nobody gains influence by the form of what it sends."""

from __future__ import annotations

import pytest

from coterie.records.words import Form, ParticipationState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.words.v1 import words_pb2 as words
from services.aggregation.domain.records import Delivery
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadUpdate, RoundOver
from services.aggregation.ways import combinations, way_for
from services.aggregation.ways.base import Roster, Way

FORMS = ("mean", "sum", "report")


def way_of(topology: str, privacy: str, incentive: str) -> Way:
    return way_for(TaskSpecification("t", topology=topology, privacy=privacy, incentive=incentive))


def delivery(device: str, form: str, weight: float = 1.0) -> Delivery:
    return Delivery("tsk", 1, device, "", 1, Form(form), weight, {}, 0, 0.0)


def roster(attempt: int = 1) -> Roster:
    """h heads m, s is alone; all enrolled with 10 samples."""
    items = {
        "h": pb.WorkItem(
            role=words.ROLE_HEAD, self_weight=30.0, peers=[pb.Peer(device_id="m", role=words.ROLE_MEMBER, weight=20.0)]
        ),
        "m": pb.WorkItem(
            role=words.ROLE_MEMBER, self_weight=20.0, peers=[pb.Peer(device_id="h", role=words.ROLE_HEAD)]
        ),
        "s": pb.WorkItem(role=words.ROLE_SOLO, self_weight=5.0),
    }
    states = dict.fromkeys(items, ParticipationState.ASSIGNED)
    return Roster(items, states, dict.fromkeys(items, 10), attempt, via={"m": "h"})


@pytest.mark.parametrize("axes", sorted(axes for axes in combinations() if axes[0] != "clusters"))
def test_outside_clusters_a_task_takes_one_form_and_no_more_weight_than_samples(axes: tuple[str, str, str]) -> None:
    """A sum says its weight itself, and a report brings nothing: a star takes neither, a mesh nothing but reports."""
    way = way_of(*axes)
    taken = "report" if axes[0] == "mesh" else "mean"
    for form in FORMS:
        if form == taken:
            way.check_delivery(roster(), delivery("s", form, 10.0))
        else:
            with pytest.raises(BadUpdate, match=f"form {taken}"):
                way.check_delivery(roster(), delivery("s", form))
    if taken == "mean":
        with pytest.raises(BadUpdate, match="10 samples"):
            way.check_delivery(roster(), delivery("s", "mean", 10.1))


@pytest.mark.parametrize("axes", sorted(axes for axes in combinations() if axes[0] == "clusters"))
def test_in_clusters_members_report_and_the_others_bring_no_more_than_the_plan_gives_them(
    axes: tuple[str, str, str],
) -> None:
    way = way_of(*axes)
    for device, form, most in (("h", "sum", 50.0), ("h", "mean", 30.0), ("s", "mean", 5.0), ("s", "sum", 5.0)):
        way.check_delivery(roster(), delivery(device, form, most))
        with pytest.raises(BadUpdate, match="above"):
            way.check_delivery(roster(), delivery(device, form, most * 1.001))
    way.check_delivery(roster(), delivery("m", "report"))
    for device, form in (("m", "mean"), ("m", "sum"), ("h", "report"), ("s", "report")):
        with pytest.raises(BadUpdate, match="the plan wants"):
            way.check_delivery(roster(), delivery(device, form))
        with pytest.raises(RoundOver):  # planned anew meanwhile: it may have been right before
            way.check_delivery(roster(attempt=2), delivery(device, form))


def test_a_members_report_waits_for_its_letter_and_nobody_elses_does() -> None:
    way = way_of("clusters", "trust", "payoff")
    assert way.letter_first(roster(), delivery("m", "report")) == "h"
    assert way.letter_first(roster(), delivery("h", "sum")) == ""
    reported = roster()
    reported.states["m"] = ParticipationState.DELIVERED
    assert way.letter_first(reported, delivery("m", "report")) == ""
