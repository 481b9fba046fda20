"""Which deliveries each strategy takes, and with what weight: no device gains influence by the form of its delivery."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from coterie.parameters.privacy import TrustPrivacy
from coterie.parameters.topology import ClusterParameters
from coterie.records.enums import Form, ParticipationState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.records import Delivery
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadUpdate, RoundOver
from services.aggregation.strategies import combinations, strategy_for
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.roster import Roster

FORMS = ("mean", "sum", "report")


def strategy_of(topology: str, privacy: str, incentive: str) -> Strategy:
    parameters = {"topology": ClusterParameters().to_dict(), "privacy": TrustPrivacy().to_dict()}
    specification = TaskSpecification(
        "t", topology=topology, privacy=privacy, incentive=incentive, parameters_json=json.dumps(parameters)
    )
    return strategy_for(specification)


def delivery(device: str, form: str, weight: float = 1.0, members: Iterable[str] = ()) -> Delivery:
    reports = tuple(
        {"device_id": m, "outcome": ParticipationState.DELIVERED, "note": "", "weight": 0.0} for m in members
    )
    return Delivery("tsk", 1, device, "", 1, Form(form), weight, {}, 0, 0.0, members=reports)


def roster(attempt: int = 1) -> Roster:
    """h heads m, s is alone; all enrolled with 10 samples."""
    items = {
        "h": pb.WorkItem(
            role=words.ROLE_HEAD,
            self_weight=30.0,
            solo_weight=18.0,
            peers=[pb.Peer(device_id="m", role=words.ROLE_MEMBER, weight=20.0)],
        ),
        "m": pb.WorkItem(
            role=words.ROLE_MEMBER, self_weight=20.0, peers=[pb.Peer(device_id="h", role=words.ROLE_HEAD)]
        ),
        "s": pb.WorkItem(role=words.ROLE_SOLO, self_weight=5.0),
    }
    states = dict.fromkeys(items, ParticipationState.ASSIGNED)
    counted = dict.fromkeys(items, 10.0)
    return Roster(items, states, dict.fromkeys(items, 10), attempt, relayed_by={"m": "h"}, counted=counted)


@pytest.mark.parametrize("axes", sorted(axes for axes in combinations() if axes[0] != "clusters"))
def test_task_without_clusters_takes_one_form_and_weight_within_samples(axes: tuple[str, str, str]) -> None:
    """A sum says its weight itself, and a report brings nothing: a star takes neither, a mesh nothing but reports."""
    strategy = strategy_of(*axes)
    taken = "report" if axes[0] == "mesh" else "mean"
    for form in FORMS:
        if form == taken:
            strategy.delivery.require_valid(roster(), delivery("s", form, 1.0 if axes[2] == "correlated" else 10.0))
        else:
            with pytest.raises(BadUpdate, match=f"form {taken}"):
                strategy.delivery.require_valid(roster(), delivery("s", form))
    if taken == "mean":
        with pytest.raises(BadUpdate, match="10 samples"):
            strategy.delivery.require_valid(roster(), delivery("s", "mean", 10.1))


@pytest.mark.parametrize("axes", sorted(axes for axes in combinations() if axes[0] == "clusters"))
def test_members_of_clusters_report_and_others_deliver_at_most_the_plan(
    axes: tuple[str, str, str],
) -> None:
    strategy = strategy_of(*axes)
    for device, form, most in (("h", "sum", 30.0), ("h", "mean", 30.0), ("s", "mean", 5.0), ("s", "sum", 5.0)):
        if (device, form, axes[1]) == ("h", "sum", "trust"):
            with pytest.raises(BadUpdate, match="a sum of one device hides nothing"):
                strategy.delivery.require_valid(roster(), delivery(device, form, most))
        else:
            strategy.delivery.require_valid(roster(), delivery(device, form, most))
        with pytest.raises(BadUpdate, match="above"):
            strategy.delivery.require_valid(roster(), delivery(device, form, most * 1.001))
    counts = strategy.delivery.weight(roster(), delivery("h", "mean", 30.0))
    assert counts == (18.0 if axes[1] == "trust" else 30.0), "left alone a head counts what it is worth alone"
    strategy.delivery.require_valid(roster(), delivery("h", "sum", 50.0, members=["m"]))
    with pytest.raises(BadUpdate, match="above"):
        strategy.delivery.require_valid(roster(), delivery("h", "sum", 50.0 * 1.001, members=["m"]))
    with pytest.raises(BadUpdate, match="in a sum"):
        strategy.delivery.require_valid(roster(), delivery("h", "mean", 1.0, members=["m"]))
    with pytest.raises(BadUpdate, match="not members of h"):
        strategy.delivery.require_valid(roster(), delivery("h", "sum", 1.0, members=["m", "s"]))
    strategy.delivery.require_valid(roster(), delivery("m", "report"))
    for device, form in (("m", "mean"), ("m", "sum"), ("h", "report"), ("s", "report")):
        with pytest.raises(BadUpdate, match="the plan wants"):
            strategy.delivery.require_valid(roster(), delivery(device, form))
        with pytest.raises(RoundOver):  # the plan has changed: the delivery may have fitted the old one
            strategy.delivery.require_valid(roster(attempt=2), delivery(device, form))


@pytest.mark.parametrize("axes", sorted(combinations()))
def test_the_platform_knows_what_a_delivery_weighs_whatever_it_claims(axes: tuple[str, str, str]) -> None:
    strategy, company = strategy_of(*axes), roster()
    company.counted["s"] = 7.0  # of the 10 samples it enrolled with
    known = {"clusters": 5.0}.get(axes[0], 1.0 if axes[2] == "correlated" else 7.0)
    assert strategy.delivery.weight(company, delivery("s", "mean", 10.0)) == known
    if axes[0] == "clusters":
        assert strategy.delivery.weight(company, delivery("s", "mean", 1e-9)) == known
        assert strategy.delivery.weight(company, delivery("h", "sum", 1.0, members=["m"])) == 50.0


def test_members_report_waits_for_its_letter_and_heads_sum_for_those_in_it() -> None:
    strategy = strategy_of("clusters", "trust", "payoff")
    assert strategy.delivery.required_letters(roster(), delivery("m", "report")) == ("h", ["m"])
    assert strategy.delivery.required_letters(roster(), delivery("h", "sum", members=["m"])) == ("h", ["m"])
    assert strategy.delivery.required_letters(roster(), delivery("h", "sum")) == ("h", [])
    reported = roster()
    reported.states["m"] = ParticipationState.DELIVERED
    assert strategy.delivery.required_letters(reported, delivery("m", "report")) == ("", ())
