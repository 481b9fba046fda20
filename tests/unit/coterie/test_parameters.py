"""Declared parameters: what is read, what is refused and how, and what forms and schemas show of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coterie.parameters import BadParameter, ParameterGroup, parameter, parameter_group
from coterie.parameters.privacy import TrustPrivacy, UniformPrivacy
from coterie.parameters.registry import check_keys, groups, places, schema, sections
from coterie.parameters.rules import FaultParameters
from coterie.parameters.topology import MeshParameters
from coterie.records.enums import RelationKind

MESH = {"topology": "mesh", "privacy": "none", "incentive": "none", "rule": "nnm+trimmed-mean", "mode": "synchronous"}


@parameter_group("topology", "ring")
class RingParameters(ParameterGroup):
    """A group as another package declares it."""

    neighbours: int = parameter(default=2, at_least=1, help="Neighbours on each side.")
    weights: tuple[float, ...] = parameter(default=(), max_length=2, help="Weights.")
    name: str = parameter(default="", pattern="[a-z]+", help="A name.")

    def requirements(self) -> None:
        if self.weights and self.name:
            raise ValueError("give weights or a name, not both")


def test_defaults_fill_what_is_left_out() -> None:
    assert RingParameters.validate({}).to_dict() == {"neighbours": 2, "weights": [], "name": ""}


def test_null_means_not_given_unless_it_is_a_value() -> None:
    assert RingParameters.validate({"topology": {"neighbours": None}}).neighbours == 2
    assert MeshParameters.validate({"topology": {"max_degree": None}}).to_dict()["max_degree"] is None


def test_numbers_take_their_declared_type() -> None:
    trust = TrustPrivacy.validate({"privacy": {"trust_threshold": 1}})
    assert type(trust.trust_threshold) is float
    assert type(RingParameters.validate({"topology": {"neighbours": 3.0}}).neighbours) is int


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "parameters.topology: must be a JSON object, not []"),
        ({"neighbors": 3}, "parameters.topology.neighbors: no such parameter, did you mean 'neighbours'?"),
        ({"neighbours": 0}, "parameters.topology.neighbours: must be a whole number at least 1, not 0; change it, or"),
        ({"neighbours": 1.5}, "parameters.topology.neighbours: must be a whole number"),
        ({"neighbours": True}, "parameters.topology.neighbours: must be a whole number"),
        ({"neighbours": float("inf")}, "parameters.topology.neighbours: must be a whole number"),
        ({"weights": [1, 10**400]}, "parameters.topology.weights: must be a list of numbers, 2 at most, not"),
        ({"weights": [1, 2, 3]}, "parameters.topology.weights: must be a list of numbers, 2 at most, not [1, 2, 3]"),
        ({"name": "A"}, "parameters.topology.name: must be text like [a-z]+, not 'A'"),
        ({"name": "a", "weights": [1]}, "parameters.topology: give weights or a name, not both"),
    ],
    ids=str,
)
def test_refusal_names_path_value_and_remedy(given: Any, message: str) -> None:
    with pytest.raises(BadParameter) as refused:
        RingParameters.validate({"topology": given})
    assert str(refused.value).startswith(message)
    assert refused.value.path == message.partition(":")[0]


def test_required_parameter_is_asked_for_with_its_meaning() -> None:
    with pytest.raises(BadParameter, match=r"parameters\.rule\.f: is missing; give a whole number at least 0: Devices"):
        FaultParameters.validate({})


def test_stored_parameters_of_another_group_are_ignored() -> None:
    stored = {"privacy": {"noise_max": 0.5, "calibration": "exact", "delta": 0.1}}
    assert UniformPrivacy.of(stored).delta == 0.1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topolgy": {}}, "parameters.topolgy: no such parameter, did you mean 'topology'?"),
        ({"topology": 3}, "parameters.topology: must be a JSON object, not 3"),
        ({"topology": {"identity_weight": 1}}, "parameters.topology.identity_weight: no such parameter; topology mesh"),
        ({"privacy": {"epsilon": 1}}, "parameters.privacy.epsilon: no such parameter; privacy none takes none"),
        ({"rule": {"radius": 1}}, "parameters.rule.radius: no such parameter; rule nnm+trimmed-mean takes: f, share"),
        ({"offer": {}}, "parameters.offer: no such parameter"),
    ],
    ids=str,
)
def test_keys_that_a_task_does_not_read_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadParameter) as refused:
        check_keys(given, MESH)
    assert str(refused.value).startswith(message)


def test_keys_of_every_step_of_a_rule_are_taken() -> None:
    check_keys({"rule": {"f": 1, "share": 0.1}, "sums": {"mode": "clear"}, "topology": {"plan": "social"}}, MESH)


def test_every_parameter_has_a_help_and_a_valid_default() -> None:
    for place in places():
        item = place.parameter
        assert item.help.endswith((".", ").")), place.path
        assert item.title, place.path
        if item.default not in (None, ()) and not item.is_required:
            assert item.read(place.path, item.default) == item.default


def test_no_two_groups_of_a_section_share_a_choice_except_rules() -> None:
    for section, kinds in sections().items():
        choices = [choice for kind in kinds for choice in kind.choices]
        assert len(choices) == len(set(choices)), section
    assert len(groups()) == len(set(groups()))


def test_schema_is_json_and_has_every_parameter() -> None:
    text = json.dumps(schema(), allow_nan=False)
    assert all(f'"{place.parameter.name}"' in text for place in places())


def test_relations_are_those_of_the_platform() -> None:
    item = MeshParameters.parameters()["relations"]
    assert item.schema["items"]["enum"] == [str(kind) for kind in RelationKind]
