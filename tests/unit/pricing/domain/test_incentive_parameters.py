"""Parameters of each incentive: defaults filled in, mistakes named."""

from __future__ import annotations

import json

import pytest

from services.pricing.domain.incentives import MODELS, PayoffParameters, complete_parameters, quote_pot, read_parameters
from services.pricing.domain.records import Purse
from services.pricing.errors import BadParameters


@pytest.mark.parametrize("incentive", list(MODELS))
def test_defaults_are_filled_in_and_others_keys_are_left_alone(incentive: str) -> None:
    text = complete_parameters(incentive, '{"topology": {"anything": 1}}', 10**6, 3)
    document = json.loads(text)
    assert document["topology"] == {"anything": 1}
    assert set(document["pricing"]) == set(MODELS[incentive].model_fields)
    assert complete_parameters(incentive, text, 10**6, 3) == text


@pytest.mark.parametrize(
    ("incentive", "text", "message"),
    [
        ("auction", "{}", "no incentive 'auction'; choose one of: none, payoff, stackelberg, correlated"),
        ("none", "[]", "must be a JSON object, not list"),
        ("none", "{", "not JSON"),
        ("none", '{"pricing": 3}', "must be an object, not int"),
        ("none", '{"pricing": {"hops": 3}}', "pricing.hops: Extra inputs are not permitted.*takes: nothing"),
        ("stackelberg", '{"pricing": {"hop": 3}}', "pricing.hop:.*takes: solver, hops"),
        ("stackelberg", '{"pricing": {"discount": 1}}', "pricing.discount: Input should be less than 1"),
        ("stackelberg", '{"pricing": {"cost_quadratic": NaN}}', "NaN is not JSON"),
        ("stackelberg", '{"pricing": {"cost_quadratic": 0}}', "greater than 0"),
        ("stackelberg", '{"pricing": {"solver": "best"}}', "pricing.solver"),
        ("correlated", '{"pricing": {"variance_low": -1}}', "pricing.variance_low"),
        ("payoff", '{"pricing": {"round_microcredits": 2000000}}', "more than the escrow of 1000000"),
    ],
)
def test_a_mistake_is_named(incentive: str, text: str, message: str) -> None:
    with pytest.raises(BadParameters, match=message):
        complete_parameters(incentive, text, 10**6, 1)


@pytest.mark.parametrize("incentive", ["stackelberg", "correlated"])
def test_paying_for_privacy_needs_an_escrow(incentive: str) -> None:
    with pytest.raises(BadParameters, match="escrow_microcredits of at least 1"):
        complete_parameters(incentive, "{}", 0, 1)


def test_empty_text_means_no_parameters() -> None:
    assert read_parameters("payoff", "") == PayoffParameters()


def test_a_pot_is_an_even_share_of_what_is_left_unless_it_is_named() -> None:
    purse = Purse(1_000, 4)
    assert quote_pot("tsk_1", 1, ["a", "b"], PayoffParameters(), purse).pot_microcredits == 250
    named = quote_pot("tsk_1", 1, ["a", "b"], PayoffParameters(round_microcredits=600), purse)
    assert named.pot_microcredits == 600
    assert [offer.base_microcredits for offer in named.offers] == [300, 300]
    assert quote_pot("tsk_1", 1, ["a"], PayoffParameters(round_microcredits=6000), purse).pot_microcredits == 1_000
