"""Parameters of each incentive: defaults filled in, mistakes named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coterie.parameters.pricing import ContributionParameters, PayoffParameters
from services.kit.rpc.parameters import BadParameters
from services.pricing.domain.incentives import MODELS, complete_parameters, quote_pot, read_parameters
from services.pricing.domain.records import RoundBudget


@pytest.mark.parametrize("incentive", list(MODELS))
def test_defaults_are_filled_in_and_others_keys_are_left_alone(incentive: str) -> None:
    document = complete_parameters(incentive, {"topology": {"anything": 1}}, 10**6, 3)
    assert document["topology"] == {"anything": 1}
    known = MODELS[incentive].parameters()
    assert set(document["pricing"]) == {name for name, item in known.items() if item.default is not None}
    assert complete_parameters(incentive, document, 10**6, 3) == document


@pytest.mark.parametrize(
    ("incentive", "given", "message"),
    [
        (
            "auction",
            {},
            "unknown incentive 'auction'; choose one of: none, payoff, contribution, stackelberg",
        ),
        ("none", {"pricing": {"hops": 3}}, "pricing.hops: no such parameter; incentive none takes none"),
        (
            "stackelberg",
            {"pricing": {"hop": 3}},
            "pricing.hop: no such parameter, did you mean 'hops'.*takes: solver",
        ),
        ("stackelberg", {"pricing": {"discount": 1}}, "pricing.discount: must be a number above 0 and below 1, not 1"),
        ("stackelberg", {"pricing": {"cost_quadratic": math.nan}}, "cost_quadratic: must be a number above 0, not nan"),
        ("stackelberg", {"pricing": {"cost_quadratic": 0}}, "cost_quadratic: must be a number above 0, not 0"),
        ("stackelberg", {"pricing": {"solver": "best"}}, "pricing.solver"),
        ("correlated", {"pricing": {"variance_low": -1}}, "pricing.variance_low"),
        ("payoff", {"pricing": {"round_microcredits": 2000000}}, "more than the escrow of 1000000"),
    ],
)
def test_a_mistake_is_named(incentive: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadParameters, match=message):
        complete_parameters(incentive, given, 10**6, 1)


@pytest.mark.parametrize("incentive", ["stackelberg", "correlated", "contribution"])
def test_paying_for_privacy_needs_an_escrow(incentive: str) -> None:
    with pytest.raises(BadParameters, match="escrow_microcredits is 0; set it to at least 1"):
        complete_parameters(incentive, {}, 0, 1)


def test_no_parameters_mean_the_defaults() -> None:
    assert read_parameters("payoff", {}) == PayoffParameters()


def test_a_pot_is_an_even_share_of_what_is_left_unless_it_is_named() -> None:
    round_budget = RoundBudget(1_000, 4)
    assert quote_pot("tsk_1", 1, "payoff", ["a", "b"], PayoffParameters(), round_budget).pot_microcredits == 250
    named = quote_pot("tsk_1", 1, "payoff", ["a", "b"], PayoffParameters(round_microcredits=600), round_budget)
    assert named.pot_microcredits == 600
    assert [offer.base_microcredits for offer in named.offers] == [300, 300]
    most = quote_pot("tsk_1", 1, "contribution", ["a"], ContributionParameters(round_microcredits=6000), round_budget)
    assert (most.pot_microcredits, most.incentive) == (1_000, "contribution")
