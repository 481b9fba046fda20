"""What surrounds every request: whose page may speak to this one, and what browsers may do with the answer.

A request that changes something, and every WebSocket, must come from a page of this console: browsers say so in
`Origin`. Cookies alone are not enough, since a stranger's page may make a browser send them.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# NiceGUI's page is made of inline scripts and of templates that Vue compiles in the browser; nothing is loaded from,
# sent to or framed by any other host.
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
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, url: str, https: bool, signed_in: Callable[[Scope], bool]) -> None:
        self._app, self._signed_in = app, signed_in
        self._host = urlsplit(url).netloc
        headers = HEADERS | ({"Strict-Transport-Security": "max-age=31536000"} if https else {})
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "websocket" and not (self._from_here(scope) and self._signed_in(scope)):
            await send({"type": "websocket.close", "code": 1008, "reason": "not from a signed-in page of this site"})
            return
        if kind != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        if scope["method"] not in SAFE and not self._from_here(scope):
            refused = PlainTextResponse("This request came from another site and was refused.", 403)
            await refused(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _from_here(self, scope: Scope) -> bool:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = urlsplit(headers.get(b"origin", ""))
        return bool(origin.netloc) and origin.netloc == (self._host or headers.get(b"host", ""))
