"""Origin checks and security headers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from services.console.access.middleware import BrowserPolicy
from services.console.access.sign_in import safe_next


async def page(_: object) -> PlainTextResponse:
    return PlainTextResponse("page")


async def talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.close()


def app_of(*, url: str = "", https: bool = False, signed_in: bool = True) -> Starlette:
    app = Starlette(routes=[Route("/", page, methods=["GET", "POST"]), WebSocketRoute("/ws", talk)])
    app.add_middleware(BrowserPolicy, url=url, https=https, signed_in=lambda scope: signed_in)
    return app


async def ask(app: Starlette, method: str, headers: dict[str, str] | None = None) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://console.test") as client:
        return await client.request(method, "/", headers=headers)


async def first_answer(app: Starlette, origin: str) -> str:
    """Return the first message that a WebSocket receives."""
    messages: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        messages.append(message["type"])

    headers = [(b"host", b"console.test"), (b"origin", origin.encode())]
    scope = {"type": "websocket", "path": "/ws", "raw_path": b"/ws", "query_string": b"", "headers": headers}
    await app({**scope, "subprotocols": [], "root_path": ""}, receive, send)
    return str(messages[0])


async def test_a_post_from_a_page_of_this_console_is_accepted() -> None:
    assert (await ask(app_of(), "POST", {"Origin": "http://console.test"})).text == "page"


@pytest.mark.parametrize("origin", [{"Origin": "http://evil.test"}, {"Origin": "null"}, {}])
async def test_a_post_from_elsewhere_is_refused(origin: dict[str, str]) -> None:
    answer = await ask(app_of(), "POST", origin)
    assert answer.status_code == 403
    assert "another site" in answer.text


async def test_a_configured_address_overrides_the_host_header() -> None:
    app = app_of(url="https://console.example", https=True)
    assert (await ask(app, "POST", {"Origin": "http://console.test"})).status_code == 403
    assert (await ask(app, "POST", {"Origin": "https://console.example"})).status_code == 200


async def test_a_socket_opens_only_for_signed_in_pages_of_this_console() -> None:
    assert await first_answer(app_of(), "http://console.test") == "websocket.accept"
    assert await first_answer(app_of(), "http://evil.test") == "websocket.close"
    assert await first_answer(app_of(signed_in=False), "http://console.test") == "websocket.close"


async def test_every_answer_forbids_other_hosts_and_frames() -> None:
    headers = (await ask(app_of(), "GET")).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http:" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "strict-transport-security" not in headers
    over_https = await ask(app_of(url="https://c.example", https=True), "GET")
    assert "strict-transport-security" in over_https.headers


@pytest.mark.parametrize(
    ("asked", "goes"),
    [
        ("/tasks?state=failed", "/tasks?state=failed"),
        ("//evil.test/x", "/"),
        ("/\\evil.test", "/"),
        ("https://evil.test/", "/"),
        ("javascript:alert(1)", "/"),
        ("/tasks\r\nSet-Cookie: a=b", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_only_to_pages_of_this_console(asked: str, goes: str) -> None:
    assert safe_next(asked) == goes
