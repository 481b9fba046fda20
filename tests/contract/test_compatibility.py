"""The REST API and the messages between services against those of the last released version."""

from __future__ import annotations

import gzip
import importlib
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from services.gateway.app import build
from services.gateway.settings import GatewaySettings
from tests.contract.compatibility import proto_breaks, rest_breaks

ROOT = Path(__file__).parents[2]
LAST = ROOT / "tests" / "dumps" / "0.1.0"
# Broken knowingly, each with what makes it harmless.
KNOWN = {
    "aggregation.PrivacyCharge is gone": "one message of a charge, pricing's, with the same numbers",
    "aggregation.SubmitUpdateRequest.privacy has changed its name or type": "pricing's message, the same numbers",
    "aggregation.GetWorkReply.EndedEntry.value has changed its name or type": "an answer; services upgrade together",
}


@pytest.fixture(scope="module")
def old() -> dict[str, Any]:
    return dict(json.loads(gzip.decompress((LAST / "openapi.json.gz").read_bytes())))


@pytest.fixture(scope="module")
def new() -> dict[str, Any]:
    return build(GatewaySettings()).openapi()


def protos() -> FileDescriptorSet:
    found = FileDescriptorSet()
    for path in sorted((ROOT / "protos").rglob("*.proto")):
        name = ".".join(path.relative_to(ROOT / "protos").with_suffix("").parts) + "_pb2"
        file = FileDescriptorProto()
        importlib.import_module(name).DESCRIPTOR.CopyToProto(file)
        found.file.append(file)
    return found


def last_protos() -> FileDescriptorSet:
    return FileDescriptorSet.FromString(gzip.decompress((LAST / "protos.pb.gz").read_bytes()))


def test_a_rest_client_of_the_last_version_misses_nothing(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert list(rest_breaks(old, new)) == []


def test_messages_of_the_last_version_are_read_but_for_what_is_known() -> None:
    assert set(proto_breaks(last_protos(), protos())) == set(KNOWN)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda doc: doc["paths"].pop("/v1/tasks"), "GET /v1/tasks is gone"),
        (lambda doc: doc["components"]["schemas"]["Account"]["properties"].pop("opened_at"), "opened_at is gone"),
        (lambda doc: doc["components"]["schemas"]["NewTask"]["required"].append("topology"), "become necessary"),
        (lambda doc: doc["paths"]["/v1/tasks"]["get"]["parameters"].pop(), "is gone"),
    ],
)
def test_a_break_of_rest_is_told(old: dict[str, Any], change: Any, told: str) -> None:
    broken = deepcopy(old)
    change(broken)
    assert any(told in line for line in rest_breaks(old, broken))


def test_a_break_of_a_message_is_told() -> None:
    broken = last_protos()
    file = next(file for file in broken.file if file.package == "coterie_api.pricing.v1")
    gone = file.service[0].method.pop()
    field = file.message_type[0].field.pop()
    told = list(proto_breaks(last_protos(), broken))
    assert f"{file.service[0].name}.{gone.name} is gone" in told
    assert any(f".{field.name} is gone and its number" in line for line in told)
