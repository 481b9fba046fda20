"""REST API and messages between services against those of every stored release."""

from __future__ import annotations

import gzip
import json
from copy import deepcopy
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from services.gateway.app import build
from services.gateway.settings import GatewaySettings
from tests.contract.compatibility import describe_protos, proto_breaks, rest_breaks
from tests.dumps.stored import FOLDER, versions

RELEASED = [version for version in versions() if (FOLDER / version / "openapi.json.gz").exists()]
KNOWN: dict[str, str] = {}
"""Messages broken on purpose since a release, each with what makes it sanitise."""


@pytest.fixture(scope="module")
def rest() -> dict[str, Any]:
    return build(GatewaySettings()).openapi()


@pytest.mark.parametrize("version", RELEASED)
def test_rest_clients_of_a_release_miss_nothing(version: str, rest: dict[str, Any]) -> None:
    released = json.loads(gzip.decompress((FOLDER / version / "openapi.json.gz").read_bytes()))
    assert list(rest_breaks(released, rest)) == []


@pytest.mark.parametrize("version", RELEASED)
def test_messages_of_a_release_are_read(version: str) -> None:
    released = FileDescriptorSet.FromString(gzip.decompress((FOLDER / version / "protos.pb.gz").read_bytes()))
    assert set(proto_breaks(released, describe_protos())) == set(KNOWN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda doc: doc["paths"].pop("/v1/tasks"), "GET /v1/tasks is gone"),
        (lambda doc: doc["components"]["schemas"]["Account"]["properties"].pop("opened_at"), "opened_at is gone"),
        (lambda doc: doc["components"]["schemas"]["NewTask"]["required"].append("topology"), "become necessary"),
        (lambda doc: doc["paths"]["/v1/tasks"]["get"]["parameters"].pop(), "is gone"),
    ],
)
def test_a_rest_break_is_reported(rest: dict[str, Any], change: Any, message: str) -> None:
    broken = deepcopy(rest)
    change(broken)
    assert any(message in line for line in rest_breaks(rest, broken))


def test_a_message_break_is_reported() -> None:
    broken = describe_protos()
    file = next(file for file in broken.file if file.package == "coterie_api.pricing.v1")
    gone = file.service[0].method.pop()
    field = file.message_type[0].field.pop()
    breaks = list(proto_breaks(describe_protos(), broken))
    assert f"{file.service[0].name}.{gone.name} is gone" in breaks
    assert any(f".{field.name} is gone and its number" in line for line in breaks)
