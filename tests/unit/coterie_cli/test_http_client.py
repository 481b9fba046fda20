"""HTTP client of the load generator against a server that sends scripted bytes: framing, reuse, retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from coterie.errors import DigestMismatch, Fault, Unreachable
from coterie.protocol.transport import Backoff
from coterie_cli.http_client import BaseUrl, HttpClient
from coterie_cli.processes import free_ports

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok"
EARLY = b"HTTP/1.1 103 Early Hints\r\n\r\n"
BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"
GARBLED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a": \x00'
SPOILT = (
    b"HTTP/1.1 400 Bad\r\nContent-Type: application/problem+json\r\nContent-Length: 29\r\n\r\n"
    b'{"reason": "digest_mismatch"}'
)
BROKEN = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
CUT_SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"
HANG_UP = frozenset({UNTIL_CLOSED, CUT_SHORT, b""})
QUICK = Backoff(first_seconds=0.01, most_seconds=0.02, patience_seconds=0.2)


@dataclass
class Script:
    """Scripted responses in order, the requests received, and the number of connections."""

    responses: list[bytes]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self.responses and (head := await _request(reader)):
            self.requests.append(head)
            response = self.responses.pop(0)
            writer.write(response)
            if response in HANG_UP:
                break
        writer.close()


async def _request(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + await reader.readexactly(int(length[0].partition(b":")[2]) if length else 0)


@asynccontextmanager
async def scripted(*responses: bytes) -> AsyncIterator[tuple[Script, HttpClient]]:
    script = Script(list(responses))
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base"
    client = HttpClient(BaseUrl.parse(script.url), QUICK)
    try:
        yield script, client
    finally:
        await client.close()
        server.close()


def send(responses: Sequence[bytes], method: str, times: int = 1) -> tuple[Script, list[bytes]]:
    async def run() -> tuple[Script, list[bytes]]:
        async with scripted(*responses) as (script, client):
            return script, [
                (await client.send(method, "/v1/x", key="ck", content=b"abc")).content for _ in range(times)
            ]

    return asyncio.run(run())


@pytest.mark.parametrize("response", [OK, CHUNKED, UNTIL_CLOSED, EARLY + OK])
def test_every_framing_is_parsed_and_the_next_request_works(response: bytes) -> None:
    script, contents = send([response, OK], "PUT", times=2)
    assert contents == [b"ok", b"ok"]
    assert script.connections == (2 if response == UNTIL_CLOSED else 1)


def test_request_has_path_key_host_and_length() -> None:
    script, _ = send([OK], "PUT")
    head, _, body = script.requests[0].partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    assert first == b"PUT /base/v1/x HTTP/1.1"
    assert body == b"abc"
    names = {line.partition(b": ")[0]: line.partition(b": ")[2] for line in headers}
    assert names[b"Authorization"] == b"Bearer ck"
    assert names[b"Content-Length"] == b"3"
    assert names[b"Host"] == script.url.removeprefix("http://").removesuffix("/base").encode()


@pytest.mark.parametrize("trouble", [BUSY, CUT_SHORT, b"", GARBLED, SPOILT])
def test_idempotent_request_is_retried_with_the_same_request_id(trouble: bytes) -> None:
    script, contents = send([trouble, OK], "PUT")
    assert contents == [b"ok"]
    assert len(script.requests) == 2
    assert script.requests[0] == script.requests[1]


def test_body_corrupted_each_time_is_given_up() -> None:
    with pytest.raises(DigestMismatch):
        send([SPOILT] * 20, "PUT")


@pytest.mark.parametrize("trouble", [CUT_SHORT, b"", GARBLED])
def test_other_requests_are_not_retried_after_a_lost_response(trouble: bytes) -> None:
    with pytest.raises(Unreachable, match="no response to POST /v1/x"):
        send([trouble, OK], "POST")


def test_server_fault_is_raised_without_retry() -> None:
    with pytest.raises(Fault):
        send([BROKEN, OK], "PUT")


def test_refused_connection_is_retried_even_for_a_post_then_given_up() -> None:
    client = HttpClient(BaseUrl.parse(f"http://127.0.0.1:{free_ports(1)[0]}"), QUICK)
    with pytest.raises(Unreachable, match="is unreachable"):
        asyncio.run(client.send("POST", "/v1/x"))
    assert client.requests > 2


def test_malformed_url_is_named() -> None:
    with pytest.raises(ValueError, match="'platform:8000' is not the URL"):
        BaseUrl.parse("platform:8000")
