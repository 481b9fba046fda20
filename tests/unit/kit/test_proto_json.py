"""A task's parameters: an object and back, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie_api.parameters.v1 import parameters_pb2 as pb
from services.kit.rpc.proto_json import BadParameters, parameters_of, read_parameters, text_of, to_dict

DOUBLES = [
    key for key, field in pb.TopologyParameters.DESCRIPTOR.fields_by_name.items() if field.type == field.TYPE_DOUBLE
]


def test_what_is_not_given_is_told_from_zero_and_from_an_empty_list() -> None:
    assert to_dict(read_parameters({})) == {}
    assert to_dict(read_parameters({"privacy": {}})) == {"privacy": {}}
    given_zeros: dict[str, Any] = {"pricing": {"hops": 0, "floor": 0.0}, "rule": {"known": []}}
    assert to_dict(read_parameters(given_zeros)) == given_zeros
    assert not read_parameters({"pricing": {"hops": None}}).pricing.HasField("hops")


@pytest.mark.parametrize("value", [3, "recommended", None, True, 0.5], ids=str)
def test_a_value_of_any_kind_stays_what_it_is(value: object) -> None:
    shown = to_dict(read_parameters({"topology": {"max_degree": value}}))["topology"]["max_degree"]
    assert (shown, type(shown)) == (value, type(value))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "parameters: must be a JSON object, not []"),
        ({"topologie": {}}, "parameters.topologie: no such parameter, did you mean 'topology'?"),
        ({"zzz": 1}, "parameters.zzz: no such parameter; there are: topology, privacy"),
        ({"topology": 3}, "parameters.topology: must be a JSON object, not 3"),
        ({"topology": {"prize": 3}}, "parameters.topology.prize: no such parameter, did you mean 'price'?"),
        ({"topology": {"price": [3]}}, "parameters.topology.price: must be a number, not [3]"),
        ({"topology": {"price": True}}, "parameters.topology.price: must be a number, not True"),
        ({"topology": {"price": "inf"}}, "parameters.topology.price: must be a number, not 'inf'"),
        ({"topology": {"price": 10**400}}, "parameters.topology.price: must be a number, not 1000"),
        ({"topology": {"restarts": 1.5}}, "parameters.topology.restarts: must be a whole number, not 1.5"),
        ({"topology": {"restarts": 2**63}}, "parameters.topology.restarts: must be a whole number, not 9223"),
        ({"topology": {"bridge": 1}}, "parameters.topology.bridge: must be true or false, not 1"),
        ({"topology": {"method": 1}}, "parameters.topology.method: must be text, not 1"),
        ({"topology": {"loss_fit": 1}}, "parameters.topology.loss_fit: must be a list, not 1"),
        ({"topology": {"loss_fit": ["x"]}}, "parameters.topology.loss_fit: must be a number, not ['x']"),
        ({"topology": {"max_degree": {}}}, "parameters.topology.max_degree: must be a number, a word or null, not {}"),
        ({"rule": {"known": [1]}}, "parameters.rule.known: must be text, not [1]"),
    ],
    ids=str,
)
def test_a_mistake_is_refused_with_its_place(document: object, message: str) -> None:
    with pytest.raises(BadParameters) as refused:
        read_parameters(document)
    assert refused.value.message.startswith(message)


def test_a_number_may_be_text_or_whole() -> None:
    told = read_parameters({"topology": {"price": "2.5", "restarts": 3.0, "non_iid": 2}})
    assert to_dict(told) == {"topology": {"price": 2.5, "restarts": 3, "non_iid": 2.0}}


@given(st.dictionaries(st.sampled_from(DOUBLES), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_number_comes_back_as_it_was(topology: dict[str, float]) -> None:
    told = read_parameters({"topology": topology})
    assert to_dict(told) == {"topology": topology}
    assert parameters_of(text_of(told)) == told


def test_stored_text_is_read_without_what_nobody_knows_any_more() -> None:
    text = '{"topology": {"price": 2, "colour": "red", "method": 4}, "weather": {}, "survey": 7, "rule": {"known": 1}}'
    assert to_dict(parameters_of(text)) == {"topology": {"price": 2.0}, "survey": {}, "rule": {}}
    assert to_dict(parameters_of("")) == {}


def test_equal_parameters_are_stored_as_equal_text_and_shared_nowhere() -> None:
    text = text_of(read_parameters({"pricing": {"hops": 1}, "privacy": {"clip": 1}}))
    assert text == text_of(read_parameters({"privacy": {"clip": 1.0}, "pricing": {"hops": 1}}))
    parameters_of(text).pricing.hops = 7
    assert json.loads(text)["pricing"]["hops"] == parameters_of(text).pricing.hops == 1


def test_a_number_that_json_lacks_is_not_stored() -> None:
    with pytest.raises(BadParameters, match="not finite"):
        text_of(pb.TaskParameters(privacy=pb.PrivacyParameters(clip=math.nan)))
