"""The platform as a signed-in user sees it: the only module that calls REST.

`read`, `read_page` and `read_all` return the SDK's records, the other methods plain JSON. An error response raises the
SDK's error for it; a key that the gateway no longer accepts ends the session.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import httpx

from coterie.errors import NotFound, Refused, Unauthenticated, Unreachable, refusal
from coterie.records import Verification
from coterie.records.base import Record
from services.console.access.sessions import Person, Session, Sessions
from services.console.errors import SignedOut

Json: TypeAlias = dict[str, Any]
R = TypeVar("R", bound=Record)
PAGE_ITEMS = 500
CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 30.0
LONG_SECONDS = 300.0
AWAY = "The platform does not answer. Check that the gateway runs; this page retries automatically."


class GatewayClient:
    """Connections to the gateway, shared by all sessions."""

    def __init__(self, url: str, ca: str = "") -> None:
        verify = httpx.create_ssl_context(verify=ca or True) if url.startswith("https") else False
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            verify=verify,
            trust_env=False,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=50),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @asynccontextmanager
    async def open(
        self, method: str, path: str, key: str, *, wait_seconds: float = 0.0, **options: Any
    ) -> AsyncIterator[httpx.Response]:
        """Send a request; read its response inside the block."""
        headers = {"X-Request-Id": secrets.token_hex(8), **(options.pop("headers", None) or {})}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        timeout = httpx.Timeout(ANSWER_SECONDS + wait_seconds, connect=CONNECT_SECONDS)
        try:
            async with self._client.stream(method, path, headers=headers, timeout=timeout, **options) as response:
                yield response
        except httpx.TransportError as error:
            raise Unreachable(AWAY) from error

    async def ask(self, method: str, path: str, key: str = "", **options: Any) -> Any:
        """Send a request and return the JSON of its response; None when it is empty."""
        async with self.open(method, path, key, **options) as response:
            content = await response.aread()
            if not response.is_success:
                raise problem_of(response.status_code, content)
        # Graphs have megabytes: a thread parses them, so that the event loop stays free.
        return await asyncio.to_thread(json.loads, content) if len(content) > 200_000 else _small(content)


def _small(content: bytes) -> Any:
    return json.loads(content) if content else None


def problem_of(status: int, content: bytes) -> Refused:
    """Return the SDK's error for an error response."""
    try:
        document = json.loads(content)
    except ValueError:
        document = {}
    return refusal(status, document if isinstance(document, dict) else {})


async def identify(gateway: GatewayClient, api_key: str) -> Person:
    """Return the principal of an API key."""
    me = await gateway.ask("GET", "/v1/me", api_key)
    names = ("role", "subject", "name", "owner_id", "key_id", "link_id")
    return Person(*(str(me.get(name, "")) for name in names))


class Platform:
    """One session's view of the platform."""

    def __init__(self, gateway: GatewayClient, sessions: Sessions, session: Session) -> None:
        self._gateway, self._sessions, self._session = gateway, sessions, session

    @property
    def person(self) -> Person:
        """The signed-in user."""
        return self._session.person

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """Call any route with the session's key."""
        self.require_session()
        try:
            return await self._gateway.ask(method, path, self._session.api_key, **options)
        except Unauthenticated as error:
            self._sessions.end(self._session, "You were signed out because the platform no longer accepts your key.")
            raise SignedOut(self._session.ended) from error

    def require_session(self) -> None:
        """Raise SignedOut if the session has ended."""
        if not self._sessions.is_live(self._session):
            raise SignedOut(self._session.ended)

    @asynccontextmanager
    async def stream(self, path: str, **params: Any) -> AsyncIterator[httpx.Response]:
        """Stream a download."""
        self.require_session()
        async with self._gateway.open(
            "GET", path, self._session.api_key, params=params, wait_seconds=LONG_SECONDS
        ) as got:
            if not got.is_success:
                raise problem_of(got.status_code, await got.aread())
            yield got

    async def get(self, path: str, **params: Any) -> Json:
        """Return a document."""
        return dict(await self.ask("GET", path, params=params))

    async def read(self, kind: type[R], path: str, **params: Any) -> R:
        """Return a document as a record."""
        return kind.from_json(await self.get(path, **params))

    async def read_page(self, kind: type[R], path: str, *, limit: int = 100, **params: Any) -> list[R]:
        """Return the first records of a list."""
        result, _ = await self.page(path, limit=limit, **params)
        return [kind.from_json(item) for item in result]

    async def read_all(self, kind: type[R], path: str, *, most: int = 100_000, **params: Any) -> list[R]:
        """Return the records of a whole list, at most `most`."""
        result = await self.all(path, most=most, **params)
        return [kind.from_json(item) for item in result]

    async def find(self, path: str, **params: Any) -> Json | None:
        """Return a document, or None when there is none."""
        try:
            return await self.get(path, **params)
        except NotFound:
            return None

    async def page(self, path: str, *, limit: int = 100, **params: Any) -> tuple[list[Json], str]:
        """Return a page of a list, and the cursor of the next page."""
        document = await self.get(path, limit=limit, **params)
        return list(document["items"]), str(document.get("next_cursor", ""))

    async def all(self, path: str, *, most: int = 100_000, **params: Any) -> list[Json]:
        """Return a whole list, at most `most` items."""
        items: list[Json] = []
        cursor = ""
        while True:
            more, cursor = await self.page(path, limit=PAGE_ITEMS, **params, cursor=cursor)
            items += more
            if not cursor or len(items) >= most:
                return items[:most]

    # --- health ------------------------------------------------------------------------------------------------------

    async def health(self) -> Json:
        """Return the state of each service, also when some do not answer."""
        async with self._gateway.open("GET", "/health/ready", "") as response:
            content = await response.aread()
        return dict(json.loads(content))

    async def contract(self) -> Json:
        """Return the gateway's OpenAPI document."""
        return dict(await self._gateway.ask("GET", "/openapi.json"))

    async def count_blobs(self) -> Json:
        """Return how much is stored and how much of it is unused; delete nothing."""
        return dict(await self.ask("POST", "/v1/blobs/sweep", json={"dry_run": True}, wait_seconds=LONG_SECONDS))

    # --- tasks -------------------------------------------------------------------------------------------------------

    async def task(self, task_id: str) -> Json:
        return await self.get(f"/v1/tasks/{task_id}")

    async def create_task(self, specification: Json) -> Json:
        """Create a task."""
        return dict(await self.ask("POST", "/v1/tasks", json=specification, wait_seconds=60.0))

    async def start_task(self, task_id: str) -> Json:
        return dict(await self.ask("POST", f"/v1/tasks/{task_id}/start", wait_seconds=60.0))

    async def cancel_task(self, task_id: str, why: str) -> Json:
        """Cancel a task."""
        return dict(await self.ask("POST", f"/v1/tasks/{task_id}/cancel", json={"why": why}, wait_seconds=60.0))

    async def plan(self, task_id: str, version: int = 0) -> Json:
        """Return a plan of a task; version 0 is the newest."""
        return await self.get(f"/v1/tasks/{task_id}/plan", version=version)

    async def events(self, task_id: str, after: int, wait_seconds: float = 0.0) -> list[Json]:
        """Return a task's events after number `after`; wait up to `wait_seconds` for the first."""
        params = {"after": after, "limit": PAGE_ITEMS, "wait": wait_seconds}
        path = f"/v1/tasks/{task_id}/events"
        return list((await self.ask("GET", path, params=params, wait_seconds=wait_seconds))["items"])

    async def upload_model(self, model: bytes) -> str:
        """Store an initial model and return its digest."""
        return str((await self.ask("POST", "/v1/models", content=model, wait_seconds=LONG_SECONDS))["digest"])

    async def what_if(self, solver: str, body: Json) -> Json:
        """Ask a what-if solver."""
        return dict(await self.ask("POST", f"/v1/what-if/{solver}", json=body, wait_seconds=LONG_SECONDS))

    # --- trust -------------------------------------------------------------------------------------------------------

    async def graph(self, *, task: str = "", owner: str = "", at: float = 0.0) -> Json:
        """Return devices and ties."""
        return dict(
            await self.ask(
                "GET", "/v1/trust/graph", params={"task": task, "owner": owner, "at": at}, wait_seconds=LONG_SECONDS
            )
        )

    async def verify_audit(self) -> Json:
        """Verify the audit log."""
        return dict(await self.ask("POST", "/v1/audit/verification", wait_seconds=LONG_SECONDS))

    # --- money -------------------------------------------------------------------------------------------------------

    async def verify_book(self) -> Verification:
        """Verify the book."""
        return Verification.from_json(await self.ask("POST", "/v1/payments/verification", wait_seconds=LONG_SECONDS))
