"""HTTP server on loopback that can also misbehave: it can cut a response or never end it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

MOST_BODY_BYTES = 1 << 30
IDLE_SECONDS = 120.0
PIECE = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the device; `at` is monotonic seconds."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Response:
    """A response to the device.

    Attributes:
        cut: bytes after which the server closes the connection early; None = send the whole body.
        flood: bytes to send in place of the body, without Content-Length; `sent` receives the number sent.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    flood: int = 0
    sent: Callable[[int], None] = field(default=lambda count: None)


def json_response(document: Any, status: int = 200) -> Response:
    """Make a JSON response."""
    return Response(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


def problem(status: int, reason: str, detail: str, *, retry_after: float = 0.0) -> Response:
    """Make a problem document as the platform does."""
    document = {"type": f"urn:coterie:problem:{reason}", "title": "Refused", "status": status, "detail": detail}
    body = json.dumps({**document, "reason": reason, "request_id": "req_conformance", "details": {}}).encode()
    headers = {"Content-Type": "application/problem+json"}
    return Response(status, body, headers | ({"Retry-After": f"{retry_after:g}"} if retry_after else {}))


class Server:
    """Serves one function while the context is open."""

    def __init__(self, respond: Callable[[Request], Response], port: int = 0) -> None:
        self._open: set[socket.socket] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler(respond))
        self._server.daemon_threads = False  # closing waits for them
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def _handler(self, respond: Callable[[Request], Response]) -> type[BaseHTTPRequestHandler]:
        opened = self._open

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = IDLE_SECONDS

            def setup(self) -> None:
                super().setup()
                opened.add(self.connection)

            def finish(self) -> None:
                opened.discard(self.connection)
                with contextlib.suppress(OSError):
                    super().finish()

            def handle(self) -> None:
                with contextlib.suppress(OSError):  # the device may disconnect at any time
                    super().handle()

            def _serve(self) -> None:
                body = _read_body(self)
                groups = urlsplit(self.path)
                request = Request(
                    method=self.command,
                    path=groups.path,
                    query=parse_qs(groups.query),
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=body,
                    at=time.monotonic(),
                )
                _write(self, respond(request))

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = _serve

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        return Handler


def _read_body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "").lower() == "chunked":
        pieces = []
        while (size := int(handler.rfile.readline().split(b";")[0], 16)) > 0:
            if size > MOST_BODY_BYTES:
                raise ConnectionAbortedError(f"a chunk of {size} bytes is above the limit of {MOST_BODY_BYTES}")
            pieces.append(handler.rfile.read(size))
            handler.rfile.readline()
        handler.rfile.readline()
        return b"".join(pieces)
    length = int(handler.headers.get("Content-Length") or 0)
    if not 0 <= length <= MOST_BODY_BYTES:
        raise ConnectionAbortedError(f"a body of {length} bytes is above the limit of {MOST_BODY_BYTES}")
    return handler.rfile.read(length)


def _write(handler: BaseHTTPRequestHandler, response: Response) -> None:
    if response.cut == 0:
        handler.close_connection = True
        return
    handler.send_response(response.status)
    for name, value in response.headers.items():
        handler.send_header(name, value)
    if response.flood:
        handler.send_header("Connection", "close")
    else:
        handler.send_header("Content-Length", str(len(response.body)))
    handler.end_headers()
    if response.flood:
        handler.close_connection = True
        _flood(handler, response)
        return
    handler.wfile.write(response.body[: response.cut])
    handler.close_connection = handler.close_connection or response.cut is not None


def _flood(handler: BaseHTTPRequestHandler, response: Response) -> None:
    count = 0
    try:
        while count < response.flood:
            handler.wfile.write(PIECE)
            count += len(PIECE)
    finally:
        response.sent(count)
