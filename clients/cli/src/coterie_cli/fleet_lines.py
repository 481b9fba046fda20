"""HTTP for a fleet: a thousand devices share one event loop, so a request must cost little of it.

One exchange at a time on a connection; `h11` frames the messages. Attempts are repeated by the rules of `transport`.
"""

from __future__ import annotations

import asyncio
import json as json_text
import secrets
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode, urlsplit

import h11
import httpx

from coterie.errors import Unreachable
from coterie.protocol.transport import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    IDEMPOTENT,
    SENT_AGAIN,
    SPOILT,
    TRY_LATER,
    Backoff,
    headers_for,
    problem_of,
    retry_after,
)

_READ_BYTES = 1 << 18
_Headers = list[tuple[bytes, bytes]]


class NoConnection(Exception):
    """No connection came about, so nothing was asked."""


class NoAnswer(Exception):
    """The connection broke, or time ran out, before the answer was whole."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; `said` is what its JSON says, where it has some."""

    status: int
    headers: _Headers
    content: bytes
    said: Any = None

    def read(self) -> Answer:
        """The same with what it says; JSON that was damaged on its way counts as no answer."""
        if (b"content-type", b"application/json") not in self.headers:
            return self
        try:
            return replace(self, said=json_text.loads(self.content))
        except ValueError as error:
            raise NoAnswer("its JSON cannot be read") from error

    def as_response(self) -> httpx.Response:
        """The same as `httpx` would tell it."""
        return httpx.Response(self.status, headers=self.headers, content=self.content)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a platform is: what its URL says, taken apart once."""

    host: str
    port: int
    prefix: str
    authority: str
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: str) -> Place:
        """The place an `http` or `https` URL names."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a platform; give one like http://127.0.0.1:8000")
        tls = httpx.create_ssl_context(trust_env=False) if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        return cls(parts.hostname, port, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2], tls)


class Connection:
    """One connection; ask only when the answer before has come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._state = h11.Connection(h11.CLIENT)

    @classmethod
    async def open(cls, place: Place) -> Connection:
        """A new connection; raises `NoConnection` when there is nobody, or not in time."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return cls(*await asyncio.open_connection(place.host, place.port, ssl=place.tls))
        except (OSError, TimeoutError) as error:
            raise NoConnection(str(error) or "no connection in time") from error

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return self._state.our_state is h11.IDLE and not (self._reader.at_eof() or self._writer.is_closing())

    async def ask(self, request: h11.Request, body: bytes, seconds: float) -> Answer:
        """The answer to one request, within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(request, body)
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            raise NoAnswer(str(error) or "no answer in time") from error

    async def _exchange(self, request: h11.Request, body: bytes) -> Answer:
        state = self._state
        pieces = [state.send(request), state.send(h11.Data(data=body)) if body else b"", state.send(h11.EndOfMessage())]
        self._writer.write(b"".join(piece for piece in pieces if piece))
        await self._writer.drain()
        head, content = h11.Response(status_code=500, headers=[]), bytearray()
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                state.receive_data(await self._reader.read(_READ_BYTES))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                content += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
        if state.our_state is h11.DONE and state.their_state is h11.DONE:
            state.start_next_cycle()
        return Answer(head.status_code, list(head.headers), bytes(content))

    def drop(self) -> None:
        """Closes it without waiting."""
        self._writer.close()

    async def close(self) -> None:
        """Closes it and waits until it is."""
        self._writer.close()
        with suppress(OSError):  # it is gone either way
            await self._writer.wait_closed()


class Line:
    """A way to the platform that several members share: as many connections as they have requests under way."""

    def __init__(self, place: Place, backoff: Backoff) -> None:
        self._place, self._backoff, self.requests = place, backoff, 0
        self._idle: list[Connection] = []

    async def close(self) -> None:
        """Gives connections back."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(connection.close() for connection in idle))

    async def send(
        self,
        method: str,
        path: str,
        *,
        key: str = "",
        idempotent: bool | None = None,
        wait_seconds: float = 0.0,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes = b"",
    ) -> Answer:
        """A successful answer, asked for until it comes: as `Transport.send`, for one event loop."""
        safe = method in IDEMPOTENT if idempotent is None else idempotent
        body = content if json is None else json_text.dumps(json).encode()
        target = self._place.prefix + path + (f"?{urlencode(params)}" if params else "")
        sort = {} if json is None else {"Content-Type": "application/json"}
        request = self._request(method, target, {**headers_for(key), **sort, **(headers or {})}, body)
        began, spoilt = time.monotonic(), 0
        for pause in self._backoff.pauses():
            self.requests += 1
            failure: Exception
            try:
                answer = await self._ask(request, body, ANSWER_SECONDS + wait_seconds)
                if 200 <= answer.status < 300:
                    return answer.read()
                response = answer.as_response()
                failure = refused = problem_of(response)
                spoilt += refused.reason in SPOILT
                again = answer.status in TRY_LATER or (refused.reason in SPOILT and spoilt <= SENT_AGAIN)
                if not again or not safe:
                    raise failure
                pause = max(pause, retry_after(response))
            except NoConnection as error:
                failure = error
            except NoAnswer as error:
                if not safe:
                    raise Unreachable(f"no answer to {method} {path} ({error})") from error
                failure = error
            if time.monotonic() - began + pause > self._backoff.patience_seconds:
                raise Unreachable(f"the platform cannot be reached ({failure}); check that it runs") from failure
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    def _request(self, method: str, target: str, given: Mapping[str, str], body: bytes) -> h11.Request:
        headers = [("Host", self._place.authority), ("X-Request-Id", secrets.token_hex(8)), *given.items()]
        if body or method in ("PUT", "POST"):
            headers.append(("Content-Length", str(len(body))))
        return h11.Request(method=method, target=target, headers=headers)

    async def _ask(self, request: h11.Request, body: bytes, seconds: float) -> Answer:
        connection = self._unused() or await Connection.open(self._place)
        try:
            answer = await connection.ask(request, body, seconds)
        except BaseException:
            connection.drop()
            raise
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.drop()
        return answer

    def _unused(self) -> Connection | None:
        """The connection used last, if the platform has not closed it meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.drop()
        return None
