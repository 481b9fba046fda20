"""Protobuf ↔ JSON, and that every schema says exactly what its message does."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from coterie import records
from coterie.records import Record
from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.enums.v1 import enums_pb2
from coterie_api.pricing.v1 import pricing_pb2
from coterie_api.topology.v1 import topology_pb2
from coterie_api.trust.v1 import trust_pb2
from services.gateway.schemas import identity, tasks, work
from services.gateway.wire.convert import json_name, page, to_json, to_proto
from services.kit.errors import InvalidInput
from tests.contract.gateway.fakes import sample

ANSWERS: list[tuple[type[Record], Any]] = [
    (records.Me, trust_pb2.Principal),
    (records.Owner, trust_pb2.Owner),
    (records.Token, trust_pb2.IssueTokenReply),
    (records.Device, trust_pb2.Device),
    (records.Location, trust_pb2.Location),
    (records.Capabilities, trust_pb2.Capabilities),
    (records.RegisteredDevice, trust_pb2.RegisterDeviceReply),
    (records.ApiKey, trust_pb2.CreateKeyReply),
    (records.KeyInfo, trust_pb2.KeyInfo),
    (records.Stop, aggregation_pb2.Stop),
    (records.Measurement, aggregation_pb2.Measurement),
    (records.AuditEntry, trust_pb2.AuditEntry),
    (records.Recorded, trust_pb2.RecordInteractionsReply),
    (records.Interaction, trust_pb2.Interaction),
    (records.Relation, trust_pb2.Relation),
    (records.RelationCounts, trust_pb2.DeriveRelationsReply),
    (records.Hop, trust_pb2.Hop),
    (records.TrustExplanation, trust_pb2.TrustExplanation),
    (records.TrustedPeer, trust_pb2.Peer),
    (records.HistoryPoint, trust_pb2.HistoryPoint),
    (records.Loss, trust_pb2.Loss),
    (records.Tie, trust_pb2.Tie),
    (records.TrustGraph, trust_pb2.TrustGraph),
    (records.TaskPrivacy, pricing_pb2.TaskPrivacy),
    (records.PrivacyReport, pricing_pb2.PrivacyReport),
    (records.TaskSpecification, aggregation_pb2.TaskSpecification),
    (records.Task, aggregation_pb2.Task),
    (records.Enrolment, aggregation_pb2.Enrolment),
    (records.Round, aggregation_pb2.Round),
    (records.Participation, aggregation_pb2.Participation),
    (records.RoundDetail, aggregation_pb2.RoundDetail),
    (records.Event, aggregation_pb2.Event),
    (records.Model, aggregation_pb2.Model),
    (records.RegisteredModel, aggregation_pb2.RegisterModelReply),
    (records.Neighbour, topology_pb2.Neighbour),
    (records.Assignment, topology_pb2.Assignment),
    (records.GameParameters, topology_pb2.GameParameters),
    (records.Plan, topology_pb2.Plan),
    (records.Cell, topology_pb2.Cell),
    (records.Policy, topology_pb2.Policy),
    (records.Peer, aggregation_pb2.Peer),
    (records.WorkItem, aggregation_pb2.WorkItem),
    (records.Work, aggregation_pb2.GetWorkReply),
    (records.UpdateOutcome, aggregation_pb2.SubmitUpdateReply),
    (records.Letter, aggregation_pb2.Letter),
    (records.Offer, pricing_pb2.Offer),
    (records.Quote, pricing_pb2.Quote),
    (records.Account, pricing_pb2.Account),
    (records.Posting, pricing_pb2.Posting),
    (records.Payment, pricing_pb2.Payment),
    (records.Earner, pricing_pb2.Earner),
    (records.TaskCost, pricing_pb2.TaskCost),
    (records.Summary, pricing_pb2.Summary),
    (records.Verification, pricing_pb2.VerifyReply),
    (records.ImportProgress, trust_pb2.ImportReply),
    (records.TrustRule, trust_pb2.TrustRule),
    (records.Duty, aggregation_pb2.Duty),
    (records.WantedShares, aggregation_pb2.PutAnswerReply),
    (records.Evaluation, aggregation_pb2.Evaluation),
    (records.EvaluationAnswer, aggregation_pb2.AnswerEvaluationReply),
    (records.Contribution, aggregation_pb2.Contribution),
    (records.ReplayedRound, aggregation_pb2.ReplayedRound),
    (records.BlobSweep, aggregation_pb2.SweepBlobsReply),
    (records.Pruning, aggregation_pb2.PruneTasksReply),
    (records.BrowserLink, trust_pb2.Link),
    (records.Decision, trust_pb2.Decision),
    (records.PrivacyClaim, pricing_pb2.PrivacyCharge),
    (records.AuditVerification, trust_pb2.VerifyAuditReply),
]
BODIES: list[tuple[type[BaseModel], Any]] = [
    (tasks.NewTask, aggregation_pb2.TaskSpecification),
    (tasks.NewPolicy, topology_pb2.TrainPolicyRequest),
    (tasks.Link, topology_pb2.Link),
    (work.MemberReport, aggregation_pb2.MemberReport),
    (identity.NewLocation, trust_pb2.Location),
    (identity.NewCapabilities, trust_pb2.Capabilities),
]


OTHERWISE = {
    "Items": "a list of others",
    "Page": "a list of others",
    "Problem": "a refusal, no message",
    "Live": "the gateway's own",
    "Ready": "the gateway's own",
    "Versions": "the gateway's own",
    "Build": "the gateway's own",
    "Replica": "the gateway's own",
    "Letters": "its list is called `items`",
    "Statement": "its list is called `items`",
    "NodeLinkGraph": "networkx's form",
    "KnownKeys": "of a device, what another owner may see",
    "SurvivorList": "canonical text, as clerks sign it",
}
"""Records that are no message as it stands."""


@pytest.mark.parametrize(("record", "message"), ANSWERS, ids=lambda item: item.__name__)
def test_a_record_has_exactly_the_fields_of_its_message(record: Any, message: Any) -> None:
    assert {field.name for field in fields(record)} == {json_name(field) for field in message.DESCRIPTOR.fields}


@pytest.mark.parametrize(("record", "message"), ANSWERS, ids=lambda item: item.__name__)
def test_a_record_reads_what_the_gateway_writes_and_gives_it_back(record: type[Record], message: Any) -> None:
    document = orjson.loads(orjson.dumps(to_json(sample(message))))
    assert record.from_json(document).to_dict() == document


def test_every_record_is_held_against_its_message() -> None:
    every = {name for name in records.__all__ if is_dataclass(getattr(records, name))}
    assert every == {record.__name__ for record, _ in ANSWERS} | OTHERWISE.keys()


@pytest.mark.parametrize(("body", "message"), BODIES, ids=lambda item: item.__name__)
def test_a_body_has_exactly_the_fields_of_its_message(body: type[BaseModel], message: Any) -> None:
    assert set(body.model_fields) == {json_name(field) for field in message.DESCRIPTOR.fields}


def test_zeros_are_shown_absent_messages_are_null_and_bytes_are_base64() -> None:
    document = to_json(trust_pb2.Device(id="dev_1", signing_key=b"\x00\x01"))
    assert document["signing_key"] == "AAE="
    assert document["last_seen_at"] == 0.0
    assert document["location"] is None
    assert document["key_version"] == 0


def test_a_json_text_field_travels_as_an_object_under_its_short_name() -> None:
    task = aggregation_pb2.TaskSpecification(training_json='{"epochs": 2}')
    assert to_json(task)["training"] == {"epochs": 2}
    assert to_json(aggregation_pb2.TaskSpecification())["training"] == {}
    back = to_proto(aggregation_pb2.TaskSpecification, {"training": {"epochs": 2}})
    assert orjson.loads(back.training_json) == {"epochs": 2}


def test_what_was_found_is_shown_under_one_name_whoever_found_it() -> None:
    assert to_json(topology_pb2.Plan())["details"] == {}
    cells = topology_pb2.Plan(
        cell_details=topology_pb2.CellDetails(status=enums_pb2.SCHEDULE_STATUS_PARTIAL, waited={"b": 1, "a": 2})
    )
    assert to_json(cells)["details"]["waited"] == {"a": 2, "b": 1}
    mesh = topology_pb2.MeshDetails(
        bridges=[topology_pb2.DeviceList(items=["a", "b"])],
        links=[topology_pb2.PlannedLink(between=["a", "b"]), topology_pb2.PlannedLink(score=0.0)],
        baselines={"ring": topology_pb2.MeshBaseline(round_seconds=2.0)},
    )
    details = to_json(topology_pb2.Plan(mesh_details=mesh))["details"]
    assert details["bridges"] == [["a", "b"]]
    assert [link["score"] for link in details["links"]] == [None, 0.0]
    assert details["baselines"] == {
        "ring": {"round_seconds": 2.0, "pseudo_training_time": 0.0, "noised": 0.0, "why_not": ""}
    }
    assert "cell_details" not in to_json(cells)


@pytest.mark.parametrize(("value", "shown"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (0.5, 0.5)])
def test_what_json_lacks_is_a_word(value: float, shown: object) -> None:
    assert to_json(pricing_pb2.PrivacyReport(epsilon=value))["epsilon"] == shown


def test_a_page_has_items_and_a_cursor() -> None:
    reply = trust_pb2.ListOwnersReply(owners=[trust_pb2.Owner(id="own_1")], next_cursor="own_1")
    assert page(reply, "owners")["next_cursor"] == "own_1"
    assert page(reply, "owners")["items"][0]["id"] == "own_1"


def test_a_map_becomes_an_object_and_back() -> None:
    request = to_proto(aggregation_pb2.SubmitUpdateRequest, {"metrics": {"loss": 0.25}, "privacy": [{"steps": 2}]})
    assert dict(request.metrics) == {"loss": 0.25}
    assert request.privacy[0].steps == 2
    assert to_json(request)["metrics"] == {"loss": 0.25}


def test_an_empty_message_given_is_set_and_one_left_out_is_not() -> None:
    given_empty = to_proto(
        trust_pb2.UpdateDeviceRequest, identity.DeviceChange(capabilities=identity.NewCapabilities())
    )
    assert given_empty.HasField("capabilities")
    assert not given_empty.HasField("location")


@pytest.mark.parametrize("body", [{"limit": 2**40}, {"limit": "many"}, {"cursor": 3}, {"cursor": "\ud800"}], ids=str)
def test_a_value_that_does_not_fit_is_refused_by_name(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        to_proto(trust_pb2.ListOwnersRequest, body)
    assert caught.value.details == {"field": next(iter(body))}


def test_bytes_that_are_not_base64_are_refused() -> None:
    with pytest.raises(InvalidInput, match="signing_key"):
        to_proto(trust_pb2.RotateKeysRequest, {"signing_key": "not base64!"})


@pytest.mark.parametrize("kind", [message for _, message in (*ANSWERS, *BODIES)], ids=lambda item: item.__name__)
def test_json_and_back_is_the_same_message(kind: Any) -> None:
    message = sample(kind)
    assert to_proto(kind, to_json(message)) == message


@given(
    st.builds(
        trust_pb2.Interaction,
        id=st.text(st.characters(codec="utf-8"), max_size=20),
        positive=st.booleans(),
        at=st.floats(allow_nan=False, allow_infinity=False),
        duration_seconds=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_any_interaction_survives_json_text(interaction: trust_pb2.Interaction) -> None:
    """orjson keeps every double: text → number → text is exact."""
    text = orjson.dumps(to_json(interaction))
    assert to_proto(trust_pb2.Interaction, orjson.loads(text)) == interaction
