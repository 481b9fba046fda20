"""Middleware: origin checks for requests, and security headers for responses.

A request that changes something, and every WebSocket, must carry this console's `Origin`. Cookies alone are not enough:
a page of another site can make a browser send them.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# NiceGUI needs inline scripts and templates that Vue compiles in the browser. No other host may serve parts of a page,
# receive data from it or frame it.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class BrowserPolicy:
    """ASGI middleware that enforces origin checks and adds security headers."""

    def __init__(self, app: ASGIApp, *, url: str, https: bool, signed_in: Callable[[Scope], bool]) -> None:
        self._app, self._signed_in = app, signed_in
        self._host = urlsplit(url).netloc
        headers = HEADERS | ({"Strict-Transport-Security": "max-age=31536000"} if https else {})
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "websocket" and not (self._is_same_origin(scope) and self._signed_in(scope)):
            await send({"type": "websocket.close", "code": 1008, "reason": "not from a signed-in page of this site"})
            return
        if kind != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        if scope["method"] not in SAFE and not self._is_same_origin(scope):
            refused = PlainTextResponse("This request came from another site. Use the console's own pages.", 403)
            await refused(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _is_same_origin(self, scope: Scope) -> bool:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = urlsplit(headers.get(b"origin", ""))
        return bool(origin.netloc) and origin.netloc == (self._host or headers.get(b"host", ""))
