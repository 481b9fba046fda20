"""Asynchronous HTTP client of the load generator: thousands of devices share one event loop.

Each connection carries one exchange at a time; `h11` frames the messages. Requests are retried by the rules of
`coterie.protocol.transport`.
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


class ConnectionFailed(Exception):
    """No connection was made, so no request was sent."""


class ResponseLost(Exception):
    """The connection broke or timed out before the response was complete."""


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response; `payload` is its parsed JSON, None for other content."""

    status: int
    headers: _Headers
    content: bytes
    payload: Any = None

    def parsed(self) -> Response:
        """Return the response with its payload; JSON that was damaged in transit counts as a lost response."""
        if (b"content-type", b"application/json") not in self.headers:
            return self
        try:
            return replace(self, payload=json_text.loads(self.content))
        except ValueError as error:
            raise ResponseLost("the JSON of the response cannot be parsed") from error

    def as_httpx(self) -> httpx.Response:
        """Convert to an httpx response."""
        return httpx.Response(self.status, headers=self.headers, content=self.content)


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """The parsed URL of a platform."""

    host: str
    port: int
    prefix: str
    authority: str
    tls: ssl.SSLContext | None

    @classmethod
    def parse(cls, url: str) -> BaseUrl:
        """Parse an `http` or `https` URL."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the URL of a platform; give one such as http://127.0.0.1:8080")
        tls = httpx.create_ssl_context(trust_env=False) if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        return cls(parts.hostname, port, parts.path.rstrip("/"), parts.netloc.rpartition("@")[2], tls)


class Connection:
    """One connection; send a request only after the previous response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._state = h11.Connection(h11.CLIENT)

    @classmethod
    async def open(cls, base: BaseUrl) -> Connection:
        """Open a connection; raise `ConnectionFailed` when the server refuses it or does not respond in time."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return cls(*await asyncio.open_connection(base.host, base.port, ssl=base.tls))
        except (OSError, TimeoutError) as error:
            raise ConnectionFailed(str(error) or f"no connection within {CONNECT_SECONDS:g} s") from error

    @property
    def is_usable(self) -> bool:
        """Whether the connection accepts another request."""
        return self._state.our_state is h11.IDLE and not (self._reader.at_eof() or self._writer.is_closing())

    async def send(self, request: h11.Request, body: bytes, seconds: float) -> Response:
        """Send one request and wait up to `seconds` for the response."""
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(request, body)
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            raise ResponseLost(str(error) or f"no response within {seconds:g} s") from error

    async def _exchange(self, request: h11.Request, body: bytes) -> Response:
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
        return Response(head.status_code, list(head.headers), bytes(content))

    def drop(self) -> None:
        """Close the connection without waiting."""
        self._writer.close()

    async def close(self) -> None:
        """Close the connection and wait for it."""
        self._writer.close()
        with suppress(OSError):  # the connection is closed either way
            await self._writer.wait_closed()


class HttpClient:
    """A client that several devices share; it holds one connection per concurrent request."""

    def __init__(self, base: BaseUrl, backoff: Backoff) -> None:
        self._base, self._backoff, self.requests = base, backoff, 0
        self._idle: list[Connection] = []

    async def close(self) -> None:
        """Close all idle connections."""
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
    ) -> Response:
        """Send a request and retry it until it succeeds; as `Transport.send`, for one event loop."""
        is_idempotent = method in IDEMPOTENT if idempotent is None else idempotent
        body = content if json is None else json_text.dumps(json).encode()
        target = self._base.prefix + path + (f"?{urlencode(params)}" if params else "")
        content_type = {} if json is None else {"Content-Type": "application/json"}
        request = self._request(method, target, {**headers_for(key), **content_type, **(headers or {})}, body)
        began, corrupted = time.monotonic(), 0
        for pause in self._backoff.pauses():
            self.requests += 1
            failure: Exception
            try:
                response = await self._attempt(request, body, ANSWER_SECONDS + wait_seconds)
                if 200 <= response.status < 300:
                    return response.parsed()
                failure = refusal = problem_of(response.as_httpx())
                corrupted += refusal.reason in SPOILT
                is_transient = response.status in TRY_LATER or (refusal.reason in SPOILT and corrupted <= SENT_AGAIN)
                if not is_transient or not is_idempotent:
                    raise failure
                pause = max(pause, retry_after(response.as_httpx()))
            except ConnectionFailed as error:
                failure = error
            except ResponseLost as error:
                if not is_idempotent:
                    raise Unreachable(f"no response to {method} {path} ({error})") from error
                failure = error
            if time.monotonic() - began + pause > self._backoff.patience_seconds:
                raise Unreachable(f"the platform is unreachable ({failure}); check that it runs") from failure
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    def _request(self, method: str, target: str, extra: Mapping[str, str], body: bytes) -> h11.Request:
        headers = [("Host", self._base.authority), ("X-Request-Id", secrets.token_hex(8)), *extra.items()]
        if body or method in ("PUT", "POST"):
            headers.append(("Content-Length", str(len(body))))
        return h11.Request(method=method, target=target, headers=headers)

    async def _attempt(self, request: h11.Request, body: bytes, seconds: float) -> Response:
        connection = self._idle_connection() or await Connection.open(self._base)
        try:
            response = await connection.send(request, body, seconds)
        except BaseException:
            connection.drop()
            raise
        if connection.is_usable:
            self._idle.append(connection)
        else:
            connection.drop()
        return response

    def _idle_connection(self) -> Connection | None:
        """Return the most recently used connection that the platform has not closed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.drop()
        return None
