"""Imports as NDJSON: streamed in chunks, stored up to a bad line, resumable."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from coterie_api.trust.v1 import trust_pb2
from services.gateway.routes.imports import CHUNK_ROWS, MAX_LINE_BYTES
from services.kit.errors import InvalidInput, NotFound
from tests.contract.gateway.conftest import bearer
from tests.contract.gateway.fakes import FakePlatform

IMPORTS = "/v1/trust/imports"
HEADER: dict[str, Any] = {"name": "town", "owner_name": "Town", "synthetic": True, "lines": 3}
DEVICE = {"line": 1, "device": {"name": "lamp", "location": {"x_metres": 1.5, "y_metres": 2}}, "owner_name": "City"}
TIE = {
    "line": 2,
    "interaction": {"device_a": "lamp", "device_b": "phone", "positive": True, "duration_seconds": 60, "at": 1e9},
    "relation": {"kind": "social", "a": "lamp", "b": "phone", "strength": 0.5},
}


class Chunks:
    """A registry that takes chunks and remembers them."""

    def __init__(self) -> None:
        self.got: list[trust_pb2.ImportChunk] = []

    async def __call__(self, stream: AsyncIterator[trust_pb2.ImportChunk]) -> trust_pb2.ImportReply:
        async for chunk in stream:
            self.got.append(chunk)
        return trust_pb2.ImportReply(last_line=max((row.line for row in self.rows), default=0), devices=2)

    @property
    def rows(self) -> list[trust_pb2.ImportRow]:
        return [row for chunk in self.got for row in chunk.rows]


@pytest.fixture
def registry(platform: FakePlatform) -> Chunks:
    chunks = Chunks()
    platform.replies["Import"] = chunks
    return chunks


def body(*lines: object) -> bytes:
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)


async def post(client: httpx.AsyncClient, content: object, role: str = "admin") -> httpx.Response:
    return await client.post(IMPORTS, headers=bearer(role), content=content)  # type: ignore[arg-type]  # bytes or stream


async def test_header_and_rows_reach_the_registry(client: httpx.AsyncClient, registry: Chunks) -> None:
    answer = await post(client, body(HEADER, DEVICE, b"\n", TIE).rstrip())
    assert (answer.status_code, answer.json()) == (
        200,
        {"last_line": 2, "devices": 2, "interactions": 0, "relations": 0},
    )
    header = registry.got[0].header
    assert (header.name, header.owner_name, header.synthetic) == ("town", "Town", True)
    device, tie = registry.rows
    assert (device.device.name, device.device.location.x_metres, device.owner_name) == ("lamp", 1.5, "City")
    assert (device.HasField("interaction"), device.HasField("relation")) == (False, False)
    assert (tie.interaction.device_b, tie.interaction.at, tie.relation.strength) == ("phone", 1e9, 0.5)


async def test_a_long_body_goes_on_in_chunks_whatever_its_pieces(client: httpx.AsyncClient, registry: Chunks) -> None:
    whole = body(HEADER, *({**TIE, "line": k} for k in range(1, CHUNK_ROWS + 6)))

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(whole), 1009):
            yield whole[start : start + 1009]

    answer = await post(client, pieces())
    assert answer.json()["last_line"] == CHUNK_ROWS + 5
    assert [len(chunk.rows) for chunk in registry.got] == [0, CHUNK_ROWS, 5]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"{not json}\n", "line 3 of the body"),
        ({**TIE, "line": 0}, "line 3 of the body: line:"),
        ({**TIE, "colour": "red"}, "colour"),
        ({"line": 3, "relation": {"kind": "love", "a": "a", "b": "b"}}, "relation.kind"),
        ({"line": 3, "device": {"name": "a\0b"}}, "U+0000"),
        (b'{"line": 3, "interaction": {"device_a":"a","device_b":"b","positive":true,"at":NaN}}\n', "line 3"),
        (b"[" * (MAX_LINE_BYTES + 1), "more than"),
    ],
)
async def test_a_bad_line_is_named_and_those_before_it_are_stored(
    client: httpx.AsyncClient, registry: Chunks, bad: object, message: str
) -> None:
    answer = await post(client, body(HEADER, DEVICE, bad, {**TIE, "line": 9}))
    assert (answer.status_code, answer.json()["reason"]) == (400, "bad_row")
    assert message in answer.json()["detail"]
    assert [row.line for row in registry.rows] == [1]


@pytest.mark.parametrize("content", [b"", b"\n", b"[]\n", body(DEVICE), body({"name": "", "owner_name": "Town"})])
async def test_without_a_header_nothing_is_imported(
    client: httpx.AsyncClient, platform: FakePlatform, content: bytes
) -> None:
    answer = await post(client, content)
    assert (answer.status_code, answer.json()["details"]["line"]) == (400, "1")
    assert platform.called("Import") == []


class BadImport(InvalidInput):
    """As the registry says it."""


async def test_the_registrys_refusal_comes_back_with_its_line(
    client: httpx.AsyncClient, platform: FakePlatform
) -> None:
    platform.replies["Import"] = BadImport("line 2: 'a' with itself", details={"line": "2"})
    answer = await post(client, body(HEADER, *({**TIE, "line": k} for k in range(1, 3 * CHUNK_ROWS))))
    assert (answer.status_code, answer.json()["reason"]) == (400, "bad_import")
    assert answer.json()["details"] == {"line": "2"}


async def test_progress_is_asked_by_name(client: httpx.AsyncClient, platform: FakePlatform) -> None:
    platform.replies["GetImport"] = trust_pb2.ImportReply(last_line=7, relations=2)
    answer = await client.get(f"{IMPORTS}/my town", headers=bearer("admin"))
    assert answer.json() == {"last_line": 7, "devices": 0, "interactions": 0, "relations": 2}
    assert platform.called("GetImport")[0].request.name == "my town"
    platform.replies["GetImport"] = NotFound("no import 'x'; start it first")
    assert (await client.get(f"{IMPORTS}/x", headers=bearer("admin"))).status_code == 404


@pytest.mark.parametrize("role", ["publisher", "device"])
async def test_only_admins_import(client: httpx.AsyncClient, registry: Chunks, role: str) -> None:
    assert (await post(client, body(HEADER, DEVICE), role)).status_code == 403
    assert registry.got == []
