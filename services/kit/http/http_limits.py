"""Limits on HTTP connections before authentication: count, count per address, header size, and time.

A connection is idle when no request is under way on it. When all connections are in use, the longest-idle one is
closed, which protects against slowloris.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.kit.http.proxies import Proxies
from services.kit.observability.logs import get_logger
from services.kit.runtime.settings import EdgeSettings

RESERVED_FILES = 256
"""File descriptors reserved for services, blobs and logs."""
REMINDER_SECONDS = 60.0
_log = get_logger()


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one server; `per_address` 0 means no limit."""

    header_bytes: int
    header_seconds: float
    body_seconds: float
    connections: int
    per_address: int
    proxies: Proxies


@dataclass(slots=True)
class ConnectionTable:
    """The open connections of one server; `idle` is ordered by idle time, the longest first."""

    limits: ConnectionLimits
    count: int = 0
    of_address: Counter[str] = field(default_factory=Counter)
    idle: dict[LimitedProtocol, None] = field(default_factory=dict)
    silent_until: float = 0.0

    def admit(self, connection: LimitedProtocol, address: str) -> str:
        """Count a new connection; return why it is refused, if it is. A full table evicts the longest-idle one."""
        crowded = 0 < self.limits.per_address <= self.of_address[address]
        if crowded and not self.limits.proxies.trusts(address):
            return self._refusal(
                address, "your address", self.limits.per_address, "COTERIE_MAX_CONNECTIONS_PER_ADDRESS"
            )
        if self.count >= self.limits.connections:
            oldest = next(iter(self.idle), None)
            if oldest is None:
                return self._refusal(address, "all callers", self.limits.connections, "COTERIE_MAX_CONNECTIONS")
            oldest.evict()
        self.count += 1
        self.of_address[address] += 1
        self.idle[connection] = None
        return ""

    def _refusal(self, address: str, whose: str, most: int, setting: str) -> str:
        """The message for the caller; logs a warning at most once a minute."""
        if time.monotonic() >= self.silent_until:
            self.silent_until = time.monotonic() + REMINDER_SECONDS
            _log.warning("connections refused", address=address, most=most, setting=setting)
        return f"too many connections of {whose} ({most}); try again later, or ask the operator to raise {setting}"

    def remove(self, connection: LimitedProtocol, address: str) -> None:
        """Forget a closed connection."""
        self.idle.pop(connection, None)
        self.count -= 1
        self.of_address[address] -= 1
        if not self.of_address[address]:
            del self.of_address[address]


class LimitedProtocol(HttpToolsProtocol):
    """One connection, with limits on header bytes and on the time to send headers and bodies."""

    table: ConnectionTable

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits = self.table.limits
        self._address: str | None = None
        self._between = True  # no request under way: the next byte begins one
        self._in_head = True
        self._pending_bytes = 0  # since the last piece of a body or the last end of a request
        self._watch: asyncio.TimerHandle | None = None
        self._upgraded = False  # a WebSocket from here on

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if why := self.table.admit(self, address):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too_many_connections", why)
            return
        self._address = address
        self._watch_for(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watch()
        self._count_out()
        super().connection_lost(exc)

    def evict(self) -> None:
        """Close an idle connection to make room."""
        self._stop_watch()
        self._count_out()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._pending_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self._upgraded:
            return
        if self._pending_bytes > self._limits.header_bytes:
            why = f"the headers exceed {self._limits.header_bytes} bytes; send smaller ones"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", why)
        elif self._in_head and self._pending_bytes:
            if self._watch is None:  # the time limit of a head starts at its first byte
                self._watch_for(self._limits.header_seconds)
        elif self._between:
            self._stop_watch()
        else:
            self._watch_for(self._limits.body_seconds)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._between, self._in_head = False, True

    def on_headers_complete(self) -> None:
        if self.client is not None:
            caller = self._limits.proxies.caller(self.client[0], self.headers)
            if caller != self.client[0]:
                self.scope["client"] = (caller, 0)
        super().on_headers_complete()
        self._in_head = False
        self._stop_watch()
        self.table.idle.pop(self, None)

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._between, self._in_head, self._pending_bytes = True, True, 0
        self._rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._rest()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the WebSocket protocol; it counts until it is lost and is never evicted."""
        self._upgraded = True
        self._stop_watch()
        self.table.idle.pop(self, None)
        super().handle_websocket_upgrade()
        protocol = cast(asyncio.Protocol, self.transport.get_protocol())
        lost = protocol.connection_lost

        def counted(exc: Exception | None) -> None:
            self._count_out()
            lost(exc)

        protocol.connection_lost = counted  # type: ignore[method-assign]

    def _rest(self) -> None:
        """Mark the connection idle if its last request has been received and answered."""
        if self._address is not None and self._between and self.cycle is not None and self.cycle.response_complete:
            self.table.idle[self] = None

    def _watch_for(self, seconds: float) -> None:
        self._stop_watch()
        self._watch = self.loop.call_later(seconds, self._too_slow)

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _too_slow(self) -> None:
        self._watch = None
        if self.flow.read_paused:  # the server itself is slow
            self._watch_for(self._limits.body_seconds)
        elif self._in_head:
            why = f"the headers did not arrive within {self._limits.header_seconds:g} s; send the request again"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "head_too_slow", why)
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus, reason: str, why: str) -> None:
        self._stop_watch()
        problem = {"type": f"urn:coterie:problem:{reason}", "title": status.phrase, "status": status, "reason": reason}
        body = json.dumps(problem | {"detail": why}).encode()
        headers = b"content-type: application/problem+json\r\nretry-after: 1\r\nconnection: close"
        head = b"HTTP/1.1 %d %b\r\ncontent-length: %d\r\n%b" % (status, status.phrase.encode(), len(body), headers)
        self.transport.write(head + b"\r\n\r\n" + body)
        self.transport.close()

    def _count_out(self) -> None:
        if self._address is not None:
            self.table.remove(self, self._address)
            self._address = None


def run(server: uvicorn.Server) -> None:
    """Serve until SIGTERM or SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # Uvicorn handles these while it serves and, once drained, raises them again for the previous handler.
        signal.signal(number, _ignore)
    server.run()


def _ignore(_: int, __: FrameType | None) -> None:
    """The server has drained already: exit cleanly."""


def limited(settings: EdgeSettings) -> type[LimitedProtocol]:
    """A protocol class for one server; its connections share one table."""
    limits = ConnectionLimits(
        header_bytes=settings.max_header_bytes,
        header_seconds=settings.header_seconds,
        body_seconds=settings.body_seconds,
        connections=room_for(settings.max_connections),
        per_address=settings.max_connections_per_address,
        proxies=Proxies.read(settings.trusted_proxies),
    )

    class _Limited(LimitedProtocol):
        table = ConnectionTable(limits)

    return _Limited


def room_for(connections: int) -> int:
    """The number of connections the process can hold; raises the soft limit on open files as far as possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - RESERVED_FILES))
