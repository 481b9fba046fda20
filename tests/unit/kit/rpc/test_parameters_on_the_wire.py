"""A task's parameters as a message and as stored text: an object and back, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kit.rpc.parameters import BadParameters, canonical_text, from_struct, struct_of, to_struct

LEAVES = (
    st.none()
    | st.booleans()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e308, max_value=1e308)
    | st.integers(-(2**53), 2**53)
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(st.dictionaries(st.text(), VALUES))
def test_every_object_comes_back_as_it_was(parameters: dict[str, Any]) -> None:
    text = canonical_text(parameters)
    assert from_struct(to_struct(parameters)) == parameters
    assert canonical_text(from_struct(struct_of(text))) == text


def test_equal_parameters_give_equal_text_and_reading_shares_nothing() -> None:
    text = canonical_text({"pricing": {"hops": 1}, "privacy": {"clip": 1}})
    assert text == canonical_text({"privacy": {"clip": 1.0}, "pricing": {"hops": 1}})
    struct_of(text).fields["pricing"].struct_value.fields["hops"].number_value = 7
    assert json.loads(text)["pricing"]["hops"] == from_struct(struct_of(text))["pricing"]["hops"] == 1


def test_whole_numbers_stay_whole() -> None:
    value = from_struct(to_struct({"topology": {"seed": 2**53}}))["topology"]["seed"]
    assert (value, type(value)) == (2**53, int)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "parameters: must be a JSON object, not []"),
        ({"topology": {"price": 10**400}}, "parameters.topology.price: must be a finite number, not 1000"),
        ({"topology": {"price": math.nan}}, "parameters.topology.price: must be a finite number, not nan"),
        ({"topology": {"loss_fit": [1, b"2"]}}, "parameters.topology.loss_fit.1: must be JSON, not b'2'"),
    ],
    ids=str,
)
def test_what_is_not_json_is_refused_with_its_path(given: Any, message: str) -> None:
    with pytest.raises(BadParameters) as refused:
        to_struct(given)
    assert refused.value.message.startswith(message)


def test_a_number_that_json_lacks_is_not_stored() -> None:
    with pytest.raises(BadParameters, match="not finite"):
        canonical_text({"privacy": {"clip": math.nan}})
