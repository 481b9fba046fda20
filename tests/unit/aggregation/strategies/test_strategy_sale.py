"""Where privacy is sold: updates that cannot be honest are refused, odd ones flagged, and declines leave the quorum."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from coterie.learning.local_steps import LocalSteps
from coterie.privacy.question_text import Question
from coterie.records.enums import Form, ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_cli.question_task import survey_specification
from services.aggregation.domain.layout import PREFIX_BYTES, header_length, parse
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.errors import BadTask, BadUpdate
from services.aggregation.strategies import complete, strategy_for
from services.aggregation.strategies.answer_sale import AnswerSale, estimate_metrics
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.budget_sale import NORM, BudgetSale
from services.aggregation.strategies.roster import Roster, Update
from services.kit.rpc.parameters import from_struct

QUESTION = Question("How warm is it?", 10.0, 30.0)
MARKET = BudgetSale(complete(TaskSpecification("m", preset="market", model_digests=("a" * 64,), escrow_microcredits=1)))
SURVEY = AnswerSale(
    complete(
        TaskSpecification(
            "s",
            preset="survey",
            model_digests=("a" * 64,),
            rounds=1,
            parameters_json=json.dumps(survey_specification(QUESTION)["parameters"]),
        )
    )
)


def test_the_work_item_holds_the_terms_of_the_offer() -> None:
    terms = pricing.Terms(others_variance=2.5, variance_low=0.5, variance_high=9.0, trust=[1.0, 0.5], hidden=[4.0, 3.0])
    offer = pricing.Offer(expected=1.5, most_microcredits=7, terms=terms)
    in_work_item = from_struct(SURVEY.round_plan.work_parameters(offer))["offer"]
    assert in_work_item == {
        "expected": 1.5,
        "most_microcredits": 7,
        "others_variance": 2.5,
        "variance_low": 0.5,
        "variance_high": 9.0,
        "trust": [1.0, 0.5],
        "hidden": [4.0, 3.0],
    }
    nothing = from_struct(SURVEY.round_plan.work_parameters(pricing.Offer()))["offer"]
    assert nothing == {"expected": 0.0, "most_microcredits": 0}


def delivery(**changes: Any) -> Delivery:
    values: dict[str, Any] = {"task_id": "t", "round": 1, "device_id": "d", "digest": "", "size_bytes": 1}
    values |= {"form": Form.MEAN, "weight": 1.0, "metrics": {}, "model_index": 0, "budget": 0.3}
    return Delivery(**(values | changes))


def part(device: str, norm: float, **changes: Any) -> Participation:
    values: dict[str, Any] = {"task_id": "t", "round": 1, "device_id": device, "owner_id": "o", "role": Role.SOLO}
    values |= {
        "state": ParticipationState.DELIVERED,
        "samples": 100,
        "work": b"",
        "budget": 0.3,
        "metrics": {NORM: norm},
    }
    return Participation(**(values | changes))


def inspect(
    strategy: Strategy, sold: Delivery, norm: float, *, samples: int = 100, elements: int = 650, first: float = 0.5
) -> None:
    """What `strategy` says to an update of this norm, whose first number is `first`."""
    roster = Roster({"d": pb.WorkItem()}, {"d": ParticipationState.ASSIGNED}, {"d": samples}, counted={"d": samples})
    data = save({"value": np.array([first])})
    layout = parse(data[PREFIX_BYTES:][: header_length(data[:PREFIX_BYTES], len(data))], len(data))
    strategy.delivery.inspect(
        Update(sold, roster, layout, lambda start, length: data[start : start + length], elements, norm)
    )


def test_a_norm_beyond_clipping_and_noise_is_refused_and_one_within_is_not() -> None:
    most = LocalSteps().largest_change(0.3, 100, 650)
    inspect(MARKET, delivery(), most)
    with pytest.raises(BadUpdate, match="beyond"):
        inspect(MARKET, delivery(), most * 1.01)
    with pytest.raises(BadUpdate, match="zero everywhere"):
        inspect(MARKET, delivery(), 0.0)


def test_a_larger_budget_allows_less() -> None:
    """Who claims to have added little noise cannot deliver much of it."""
    assert LocalSteps().largest_change(1.0, 100, 650) < LocalSteps().largest_change(0.1, 100, 650)


def test_a_budget_hardly_worth_the_name_is_refused() -> None:
    with pytest.raises(BadUpdate, match="least"):
        inspect(MARKET, delivery(budget=0.001), 0.1)


def test_an_answer_far_beyond_its_range_is_refused() -> None:
    """6.5 deviations of 0.5 beyond either end of [0, 1]: from −3.25 to 4.25."""
    for answer in (-3.2, 0.5, 4.2):
        inspect(SURVEY, delivery(budget=0.25), abs(answer), first=answer)
    for answer in (-3.3, 4.3):
        with pytest.raises(BadUpdate, match="variance"):
            inspect(SURVEY, delivery(budget=0.25), abs(answer), first=answer)


def test_only_an_update_that_stands_out_is_flagged() -> None:
    usual = [part(f"d{k}", 0.5 + 0.01 * k) for k in range(6)]
    assert MARKET.combination.flagged(usual, 650) == {}
    result = MARKET.combination.flagged([*usual, part("odd", 1.2)], 650)
    assert list(result) == ["odd"]
    assert "averaged and paid" in result["odd"]


def test_norms_are_compared_by_what_each_budget_allows() -> None:
    """A device that sold little adds much noise: its large norm is not suspicious."""
    quiet, loud = (LocalSteps().largest_change(budget, 100, 650) for budget in (0.5, 0.05))
    participations = [part(f"d{k}", 0.6 * quiet, budget=0.5) for k in range(5)]
    assert MARKET.combination.flagged([*participations, part("noisy", 0.6 * loud, budget=0.05)], 650) == {}


def test_too_few_updates_are_no_statistics() -> None:
    assert MARKET.combination.flagged([part("a", 0.1), part("b", 0.1), part("c", 0.1), part("d", 1.3)], 650) == {}


def test_only_delivered_answers_are_part_of_the_estimate() -> None:
    """Shares add to 0.9 over two answers: mean 10 + 0.45·20 = 19; Λ = 0.5, certified 1 − 0.5/100."""
    parts = [part("a", 0.0, budget=0.2), part("b", 0.0, budget=0.3), part("c", 0.0, budget=9.0, state="declined")]
    result = estimate_metrics(SURVEY.specification, parts, 0.9)
    assert result["estimate"] == pytest.approx(19.0)
    assert result["answers"] == 2
    assert result["total_variance"] == pytest.approx(0.5)
    assert result["accuracy"] == pytest.approx(0.995)
    assert estimate_metrics(SURVEY.specification, [], 0.0) == {}


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["assigned"] * 10, 8),
        (["declined"] * 4 + ["assigned"] * 6, 5),
        (["declined"] * 9 + ["delivered"], 1),
        (["declined"] * 10, 1),
        (["rejected"] * 2 + ["declined"] * 2 + ["delivered"] * 6, 5),
        (["idle"] * 5 + ["declined"] + ["assigned"] * 4, 4),
    ],
)
def test_a_price_that_is_declined_lowers_the_quorum(states: list[str], expected: int) -> None:
    assert MARKET.progress.quorum(8, [ParticipationState(state) for state in states]) == expected


def test_a_decline_where_nothing_is_sold_does_not() -> None:
    free = complete(TaskSpecification("f", preset="fedavg", model_digests=("a" * 64,)))
    assert (
        strategy_for(free).progress.quorum(8, [ParticipationState.DECLINED] * 4 + [ParticipationState.ASSIGNED] * 6)
        == 8
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"preset": "market", "training_json": '{"steps": 0}'}, "steps"),
        ({"preset": "market", "training_json": '{"clip_norm": "x"}'}, "clip_norm"),
        ({"preset": "survey", "rounds": 1}, "question"),
        (
            {"preset": "survey", "rounds": 1, "parameters_json": '{"survey": {"question": "?", "low": 2, "high": 1}}'},
            "low",
        ),
        ({"preset": "survey", "rounds": 2}, "asks once"),
    ],
)
def test_a_task_that_devices_could_not_work_with_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(BadTask, match=why):
        complete(TaskSpecification("t", model_digests=("a" * 64,), **changes))
