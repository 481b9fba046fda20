"""A fleet's HTTP against a server that is scripted byte by byte: framing, reuse, repetition, giving up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from coterie.errors import DigestMismatch, Fault, Unreachable
from coterie.protocol.transport import Backoff
from coterie_cli.fleet_lines import Line, Place
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
    """Answers in order; what was asked, and over how many connections."""

    answers: list[bytes]
    asked: list[bytes] = field(default_factory=list)
    connections: int = 0
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self.answers and (head := await _request(reader)):
            self.asked.append(head)
            answer = self.answers.pop(0)
            writer.write(answer)
            if answer in HANG_UP:
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
async def scripted(*answers: bytes) -> AsyncIterator[tuple[Script, Line]]:
    script = Script(list(answers))
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base"
    line = Line(Place.of(script.url), QUICK)
    try:
        yield script, line
    finally:
        await line.close()
        server.close()


def ask(answers: Sequence[bytes], method: str, times: int = 1) -> tuple[Script, list[bytes]]:
    async def all_of_it() -> tuple[Script, list[bytes]]:
        async with scripted(*answers) as (script, line):
            return script, [(await line.send(method, "/v1/x", key="ck", content=b"abc")).content for _ in range(times)]

    return asyncio.run(all_of_it())


@pytest.mark.parametrize("answer", [OK, CHUNKED, UNTIL_CLOSED, EARLY + OK])
def test_every_framing_is_understood_and_the_next_request_works(answer: bytes) -> None:
    script, contents = ask([answer, OK], "PUT", times=2)
    assert contents == [b"ok", b"ok"]
    assert script.connections == (2 if answer == UNTIL_CLOSED else 1)


def test_a_request_says_where_who_and_how_much() -> None:
    script, _ = ask([OK], "PUT")
    head, _, body = script.asked[0].partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    assert first == b"PUT /base/v1/x HTTP/1.1"
    assert body == b"abc"
    names = {line.partition(b": ")[0]: line.partition(b": ")[2] for line in headers}
    assert names[b"Authorization"] == b"Bearer ck"
    assert names[b"Content-Length"] == b"3"
    assert names[b"Host"] == script.url.removeprefix("http://").removesuffix("/base").encode()


@pytest.mark.parametrize("trouble", [BUSY, CUT_SHORT, b"", GARBLED, SPOILT])
def test_what_may_be_repeated_is_and_with_the_same_request_id(trouble: bytes) -> None:
    script, contents = ask([trouble, OK], "PUT")
    assert contents == [b"ok"]
    assert len(script.asked) == 2
    assert script.asked[0] == script.asked[1]


def test_a_body_that_is_spoilt_each_time_is_not_sent_for_ever() -> None:
    with pytest.raises(DigestMismatch):
        ask([SPOILT] * 20, "PUT")


@pytest.mark.parametrize("trouble", [CUT_SHORT, b"", GARBLED])
def test_what_may_not_be_repeated_is_not(trouble: bytes) -> None:
    with pytest.raises(Unreachable, match="no answer to POST /v1/x"):
        ask([trouble, OK], "POST")


def test_a_fault_is_raised_at_once() -> None:
    with pytest.raises(Fault):
        ask([BROKEN, OK], "PUT")


def test_nobody_there_is_asked_again_even_for_a_post_and_then_given_up() -> None:
    line = Line(Place.of(f"http://127.0.0.1:{free_ports(1)[0]}"), QUICK)
    with pytest.raises(Unreachable, match="cannot be reached"):
        asyncio.run(line.send("POST", "/v1/x"))
    assert line.requests > 2


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="'platform:8000' is no address"):
        Place.of("platform:8000")
