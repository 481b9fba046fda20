"""Clusters whose members sell privacy: who is offered a price, what counts as sold, and claims an update rules out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coterie.records.enums import Form, ParticipationState, Role, RoundState, TaskState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.records import Delivery, Model, Participation, Round, Task
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.rounds.assignment import make_items
from services.aggregation.rounds.settling import work_of
from services.aggregation.strategies import complete, presets, strategy_for
from services.aggregation.strategies.noise_sale import NoiseSale
from services.aggregation.strategies.roster import Roster, Update
from services.kit.rpc.enums import word
from services.kit.rpc.parameters import from_struct

MIXED = complete(
    TaskSpecification(
        "m", topology="clusters", privacy="trust", incentive="stackelberg", model_digests=("a",), escrow_microcredits=1
    )
)
NOISE_SALE = NoiseSale(MIXED)
SEATS = [
    topology.Assignment(device_id="h", role=words.ROLE_HEAD),
    topology.Assignment(device_id="a", role=words.ROLE_MEMBER, head_device_id="h"),
    topology.Assignment(device_id="b", role=words.ROLE_MEMBER, head_device_id="h", noise_multiplier=0.3),
    topology.Assignment(device_id="s", role=words.ROLE_SOLO, noise_multiplier=0.6),
]


def items() -> dict[str, pb.WorkItem]:
    """Work of a round in which every device has an offer, as after a new plan."""
    task = Task("tsk", "pub", MIXED, TaskState.RUNNING, "", 1, 0.0, 0.0, 0.0, False, 0)
    round_ = Round("tsk", 1, 1, RoundState.OPEN, 1, 1, 0.0, 60.0, 1)
    offers = [
        pricing.Offer(device_id=assignment.device_id, price_microcredits=7, external_risk=0.1, most_microcredits=9)
        for assignment in SEATS
    ]
    devices = {assignment.device_id: trust.Device(id=assignment.device_id) for assignment in SEATS}
    model = Model("tsk", 0, 0, "a", 100, 0.0)
    return make_items(
        task, round_, topology.Plan(assignments=SEATS), pricing.Quote(offers=offers), devices, {}, [model], []
    )


def test_only_those_who_noise_their_own_update_are_offered_a_price() -> None:
    assert [assignment.device_id for assignment in SEATS if NOISE_SALE.round_plan.is_quoted(assignment)] == ["b", "s"]
    made = items()
    assert {device: item.price_microcredits for device, item in made.items()} == {"h": 0, "a": 0, "b": 7, "s": 7}
    assert from_struct(made["b"].parameters)["offer"]["most_microcredits"] == 9


@pytest.mark.parametrize("preset", presets())
def test_elsewhere_every_device_is_quoted(preset: str) -> None:
    topology_, privacy, incentive = presets()[preset]
    spec = TaskSpecification("t", topology=topology_, privacy=privacy, incentive=incentive)
    strategy = strategy_for(spec)
    assert all(strategy.round_plan.is_quoted(assignment) for assignment in SEATS)
    assert (strategy.settlement.payoffs([], {}) is not None) == (preset == "clusters")


def test_payoffs_are_paid_beside_the_price() -> None:
    assert strategy_for(MIXED).settlement.payoffs([], {}) is not None


def test_a_budget_claimed_by_one_that_was_offered_nothing_is_not_passed_on() -> None:
    limits = {}
    for device, item in items().items():
        part = Participation(
            "tsk",
            1,
            device,
            "own",
            word(Role, item.role),
            ParticipationState("delivered"),
            10,
            item.SerializeToString(),
            budget=2.5,
        )
        limits[device] = work_of(NOISE_SALE, part, {})
    assert {device: work.budget for device, work in limits.items()} == {"h": 0.0, "a": 0.0, "b": 2.5, "s": 2.5}


def delivery(**changes: Any) -> Delivery:
    values: dict[str, Any] = {"task_id": "t", "round": 1, "device_id": "s", "digest": "", "size_bytes": 1}
    values |= {"form": Form.MEAN, "weight": 1.0, "metrics": {}, "model_index": 0, "budget": 0.0}
    return Delivery(**(values | changes))


def test_more_device_alone_claims_to_have_sold_shorter_its_update_must_be() -> None:
    """σ = 0.5 spends 2; with 6 sold 8 are spent and σ = 0.25 is left. √100 + √(2 ln 10⁹) = 16.438."""
    tail = 10.0 + math.sqrt(2.0 * math.log(1e9))
    item = pb.WorkItem(role=words.ROLE_SOLO, noise_multiplier=0.5, price_microcredits=7)
    roster = Roster({"s": item}, {"s": ParticipationState.ASSIGNED}, {"s": 10})
    nothing = Layout((), 0, 0)
    for budget, multiplier in ((0.0, 0.5), (6.0, 0.25)):
        most = (1.0 + multiplier * tail) * 1.001
        for form in Form.MEAN, Form.SUM:
            sold = delivery(budget=budget, form=form)
            NOISE_SALE.delivery.inspect(Update(sold, roster, nothing, lambda start, length: b"", 100, most * 0.999))
            with pytest.raises(BadUpdate, match="sold budget"):
                NOISE_SALE.delivery.inspect(Update(sold, roster, nothing, lambda start, length: b"", 100, most * 1.001))


def test_a_price_per_point_is_for_clusters_alone() -> None:
    priced = '{"pricing": {"credits_per_point": 1.0}}'
    with pytest.raises(BadTask, match="clusters"):
        complete(TaskSpecification("m", preset="market", model_digests=("a",), parameters_json=priced))
