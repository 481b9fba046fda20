"""Services speak in messages: JSON text is left only where one side does not know the shape."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.pricing.v1 import pricing_pb2
from coterie_api.topology.v1 import topology_pb2
from coterie_api.trust.v1 import trust_pb2
from services.pricing.domain.incentives import MODELS
from services.pricing.servicer.messages import DETAILS

FILES = (aggregation_pb2, pricing_pb2, topology_pb2, trust_pb2)
AREAS = ("aggregation", "pricing", "topology", "trust")
WHAT_IF = {f"{area}.WhatIfRequest.input_json" for area in AREAS} | {f"{area}.WhatIfReply.output_json" for area in AREAS}
"""Each solver has its own questions and answers, with their own contract."""
TRAINING = {"aggregation.TaskSpecification.training_json", "aggregation.WorkItem.training_json"}
"""What a publisher tells its devices' own training code; the platform hands it on."""


def _messages() -> list[tuple[str, Descriptor]]:
    return [
        (file.DESCRIPTOR.package.split(".")[1], message)
        for file in FILES
        for message in file.DESCRIPTOR.message_types_by_name.values()
    ]


def test_only_what_if_and_training_travel_as_json_text() -> None:
    result = {
        f"{area}.{message.name}.{field.name}"
        for area, message in _messages()
        for field in message.fields
        if field.name.endswith("_json")
    }
    assert result == WHAT_IF | TRAINING


def test_only_parameters_travel_as_a_struct() -> None:
    """Their declaration is `coterie.parameters`, which an extension can add to."""
    result = {
        f"{message.name}.{field.name}"
        for _, message in _messages()
        for field in message.fields
        if field.message_type is not None and field.message_type.file.package == "google.protobuf"
    }
    assert {name.rpartition(".")[2] for name in result} == {"parameters", "radio"}


def test_every_incentive_with_price_has_message_for_what_its_solver_finds() -> None:
    assert DETAILS.keys() == MODELS.keys()
    assert set(DETAILS.values()) <= set(pricing_pb2.Quote.DESCRIPTOR.fields_by_name)
