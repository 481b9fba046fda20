"""Quotes over gRPC: made once, from the ties the registry knows, within the escrow, and paid as promised."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from coterie.privacy.budget_choice import PrivateCosts, decide
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pb
from services.kit.errors import AlreadyExists, InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.parameters import from_struct, to_struct
from tests.contract.pricing.conftest import World, speak_as

DEVICES = [f"dev_{k}" for k in range(6)]
CREDITS = 1_000_000


def tie(world: World) -> None:
    """All devices trust each other a little, neighbours more."""
    for a, b in combinations(range(len(DEVICES)), 2):
        world.registry.ties[frozenset((DEVICES[a], DEVICES[b]))] = 0.9 if b == a + 1 else 0.2


async def test_a_quote_is_made_once_and_an_offer_stands(world: World) -> None:
    tie(world)
    await world.fund("tsk_1", 100 * CREDITS)
    first = await world.quote("tsk_1", 1, "stackelberg", DEVICES[:4])
    world.registry.ties.clear()
    assert await world.quote("tsk_1", 1, "stackelberg", DEVICES[:4]) == first
    assert await world.quote("tsk_1", 1, "stackelberg", DEVICES[:2]) == first
    assert world.registry.asked == 1
    more = await world.quote("tsk_1", 1, "stackelberg", DEVICES)
    assert list(more.offers[:4]) == list(first.offers)
    assert [offer.device_id for offer in more.offers[4:]] == DEVICES[4:]
    assert await world.pricing.GetQuote(pb.GetQuoteRequest(task_id="tsk_1", round=1)) == more
    with pytest.raises(AlreadyExists, match="priced as 'stackelberg'"):
        await world.quote("tsk_1", 1, "none", DEVICES)


async def test_a_market_round_from_price_to_payment(world: World) -> None:
    """Devices with private costs decide, deliver and are paid ⌊price × budget⌋; one declines and earns nothing."""
    tie(world)
    await world.fund("tsk_1", 100 * CREDITS)
    quote = await world.quote("tsk_1", 1, "stackelberg", DEVICES)
    assert quote.status == words.QUOTE_STATUS_OK
    assert len({offer.price_microcredits for offer in quote.offers}) == 1
    assert all(offer.external_risk > 0 for offer in quote.offers)
    work = []
    for k, offer in enumerate(quote.offers):
        costs = PrivateCosts(0.8 + 0.08 * k, 0.04, fixed=0.0 if k else 1e9)
        decision = decide(offer.price_microcredits / CREDITS, offer.external_risk, costs, 1.0, least_utility=0.0)
        outcome = words.PARTICIPATION_STATE_DELIVERED if decision.joins else words.PARTICIPATION_STATE_DECLINED
        work.append(pb.Work(device_id=offer.device_id, owner_id="own_1", outcome=outcome, budget=decision.budget))
    settled = await world.settle("tsk_1", 1, work)
    price = quote.offers[0].price_microcredits
    assert [p.device_id for p in settled.payments] == DEVICES[1:]
    assert [p.amount_microcredits for p in settled.payments] == [int(price * w.budget) for w in work[1:]]
    assert {p.price_microcredits for p in settled.payments} == {price}
    assert "zCDP budget" in settled.payments[0].because


async def test_hops_are_counted_along_direct_ties_once(world: World) -> None:
    """A line a–b–c, and combined trust of 0.2 between its ends, who never met: the path through b, counted again."""
    a, b, c = DEVICES[:3]
    world.registry.ties |= {frozenset((a, b)): 0.9, frozenset((b, c)): 0.9}
    world.registry.paths[frozenset((a, c))] = 0.2
    offers = {}
    for number, influence in enumerate(("direct", "combined"), 1):
        await world.fund(f"tsk_{number}", 100 * CREDITS)
        parameters = {"pricing": {"influence": influence}}
        quote = await world.quote(f"tsk_{number}", 1, "stackelberg", [a, b, c], parameters)
        assert quote.market_details.influence == influence
        offers[influence] = list(quote.offers)
    world.registry.paths.clear()
    await world.fund("tsk_3", 100 * CREDITS)
    without = await world.quote("tsk_3", 1, "stackelberg", [a, b, c], {"pricing": {"influence": "combined"}})
    assert list(without.offers) == offers["direct"], "by default the path through b is not a tie"
    assert list(without.offers) != offers["combined"]


async def test_owners_declarations_change_risk_and_no_payment(world: World) -> None:
    tie(world)
    a, b, c = DEVICES[:3]
    parameters = {"pricing": {"influence": "declared"}}
    await world.fund("tsk_1", 100 * CREDITS)
    strangers = await world.quote("tsk_1", 1, "stackelberg", [a, b, c], parameters)
    assert [offer.external_risk for offer in strangers.offers] == [0.0, 0.0, 0.0], "trust is not read"
    world.registry.declared = {(a, b): 1.0, (b, a): 0.2}
    await world.fund("tsk_2", 100 * CREDITS)
    friends = await world.quote("tsk_2", 1, "stackelberg", [a, b, c], parameters)
    assert friends.market_details.influence == "declared"
    assert list(friends.market_details.ties) == [1, 1, 0]
    assert friends.offers[0].external_risk > 0
    for before, after in zip(strangers.offers, friends.offers, strict=True):
        assert (before.price_microcredits, before.most_microcredits) == (
            after.price_microcredits,
            after.most_microcredits,
        )


async def test_leader_unsure_of_costs_posts_another_price_in_budget(world: World) -> None:
    tie(world)
    prices = []
    for task, pricing in (("tsk_1", {}), ("tsk_2", {"cost_spread": 0.5})):
        await world.fund(task, 100 * CREDITS)
        quote = await world.quote(task, 1, "stackelberg", DEVICES, {"pricing": {"accuracy_weight": 0.02, **pricing}})
        assert quote.status == words.QUOTE_STATUS_OK
        assert sum(offer.most_microcredits for offer in quote.offers) <= 100 * CREDITS
        prices.append(quote.offers[0].price_microcredits)
    assert prices[0] != prices[1]
    assert prices[1] == pytest.approx(prices[0], rel=0.2)


async def test_samples_and_model_size_reach_the_price(world: World) -> None:
    """p = 4,000 bytes/4 = 1,000, S = 2, β/μ² = 10, ΣD = 400: ε = 1,000 · 10 · 4/160,000 = 0.25."""
    tie(world)
    await world.fund("tsk_1", 100 * CREDITS)
    request = pb.QuoteRoundRequest(
        task_id="tsk_1",
        round=1,
        incentive="stackelberg",
        parameters=to_struct({"pricing": {"curvature": 10.0}}),
        participants=[
            pb.Participant(device_id=name, samples=n, counted=n)
            for name, n in zip(DEVICES[:2], (100, 300), strict=True)
        ],
        rounds=1,
        model_bytes=4000,
        clip_norm=2.0,
    )
    quote = await world.pricing.QuoteRound(request)
    assert list(quote.market_details.accuracy_weights) == pytest.approx([0.25, 0.25])


async def test_a_survey_round_from_price_to_payment(world: World) -> None:
    tie(world)
    await world.fund("tsk_1", 20 * CREDITS)
    quote = await world.quote("tsk_1", 1, "correlated", DEVICES)
    assert (quote.status, quote.survey_details.plan) == (words.QUOTE_STATUS_OK, "tight")
    expected = [offer.expected for offer in quote.offers]
    for offer in quote.offers:
        assert offer.terms.others_variance == pytest.approx(sum(expected) - offer.expected)
        assert (offer.terms.trust[0], len(offer.terms.hidden)) == (1.0, len(offer.terms.trust))
    assert await world.quote("tsk_1", 1, "correlated", DEVICES) == quote  # as stored, with terms
    work = [
        pb.Work(
            device_id=offer.device_id,
            owner_id="own_1",
            outcome=words.PARTICIPATION_STATE_DELIVERED,
            budget=offer.expected,
        )
        for offer in quote.offers
    ]
    settled = await world.settle("tsk_1", 1, work)
    assert not settled.exhausted
    assert [p.amount_microcredits for p in settled.payments] == [offer.most_microcredits for offer in quote.offers]
    assert settled.escrow_microcredits < 10  # all of the budget is spent except for rounding


async def test_a_budget_too_small_is_an_answer_not_an_error(world: World) -> None:
    tie(world)
    await world.fund("tsk_1", 1)
    parameters = {"pricing": {"variance_high": 1.0}}
    quote = await world.quote("tsk_1", 1, "correlated", DEVICES, parameters)
    assert quote.status == words.QUOTE_STATUS_INFEASIBLE
    assert quote.survey_details.least_microcredits > 1
    assert all(offer.most_microcredits == 0 for offer in quote.offers)


async def test_a_device_sees_its_own_offer_and_a_publisher_its_own_tasks(world: World) -> None:
    await world.fund("tsk_1", 0)
    await world.quote("tsk_1", 1, "none", DEVICES)
    speak_as("device", "dev_3", "own_1")
    seen = await world.pricing.GetQuote(pb.GetQuoteRequest(task_id="tsk_1", round=1))
    assert [offer.device_id for offer in seen.offers] == ["dev_3"]
    with pytest.raises(NotFound, match="no quote yet"):
        await world.pricing.GetQuote(pb.GetQuoteRequest(task_id="tsk_1", round=2))
    speak_as("publisher", "pub_1")
    assert len((await world.pricing.GetQuote(pb.GetQuoteRequest(task_id="tsk_1", round=1))).offers) == len(DEVICES)
    speak_as("publisher", "pub_2")
    with pytest.raises(PermissionDenied, match="belongs to another publisher"):
        await world.pricing.GetQuote(pb.GetQuoteRequest(task_id="tsk_1", round=1))


async def test_parameters_are_checked_before_a_task_is_made(world: World) -> None:
    speak_as("publisher", "pub_1")
    request = pb.CheckParametersRequest(incentive="stackelberg", escrow_microcredits=5, rounds=3)
    completed = await world.pricing.CheckParameters(request)
    assert from_struct(completed.parameters)["pricing"]["hops"] == 5
    request.parameters.update({"pricing": {"own_care": 5}})
    with pytest.raises(InvalidInput, match=r"pricing\.own_care") as refused:
        await world.pricing.CheckParameters(request)
    assert refused.value.reason == "bad_parameters"


async def test_what_if_answers_by_name(world: World) -> None:
    request = pb.WhatIfRequest(solver="market", input_json='{"influence": [[0, 1], [1, 0]]}')
    answer = json.loads((await world.pricing.WhatIf(request)).output_json)
    assert answer["status"] == "ok"
    request.solver = "lottery"
    with pytest.raises(NotFound, match="market, similarity, survey"):
        await world.pricing.WhatIf(request)
