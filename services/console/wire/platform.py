"""The platform as a signed-in person sees it: the only module that talks REST.

`read`, `read_page` and `read_all` answer with the SDK's records; the other methods still with the plain JSON of the
gateway's contract. A refusal raises the error the SDK draws from it; a key that is not accepted any more ends the
session.
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
AWAY = "The platform does not answer just now. Check that the gateway runs; this page tries again by itself."


class GatewayClient:
    """Connections to the gateway, shared by everybody who is signed in."""

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
        """Gives connections back."""
        await self._client.aclose()

    @asynccontextmanager
    async def open(
        self, method: str, path: str, key: str, *, wait_seconds: float = 0.0, **options: Any
    ) -> AsyncIterator[httpx.Response]:
        """A request whose answer is read inside the block."""
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
        """The answer's JSON; None when it is empty."""
        async with self.open(method, path, key, **options) as response:
            content = await response.aread()
            if not response.is_success:
                raise problem_of(response.status_code, content)
        # Graphs have megabytes: read apart from the loop that serves everybody.
        return await asyncio.to_thread(json.loads, content) if len(content) > 200_000 else _small(content)


def _small(content: bytes) -> Any:
    return json.loads(content) if content else None


def problem_of(status: int, content: bytes) -> Refused:
    """The error a refusal stands for."""
    try:
        document = json.loads(content)
    except ValueError:
        document = {}
    return refusal(status, document if isinstance(document, dict) else {})


async def identify(gateway: GatewayClient, api_key: str) -> Person:
    """Whom an API key speaks for."""
    me = await gateway.ask("GET", "/v1/me", api_key)
    names = ("role", "subject", "name", "owner_id", "key_id", "link_id")
    return Person(*(str(me.get(name, "")) for name in names))


class Platform:
    """One session's view of the platform."""

    def __init__(self, gateway: GatewayClient, sessions: Sessions, session: Session) -> None:
        self._gateway, self._sessions, self._session = gateway, sessions, session

    @property
    def person(self) -> Person:
        """Who asks."""
        return self._session.person

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """Any route, with the session's key."""
        self.require_session()
        try:
            return await self._gateway.ask(method, path, self._session.api_key, **options)
        except Unauthenticated as error:
            self._sessions.end(self._session, "You were signed out: the platform does not know your key any more.")
            raise SignedOut(self._session.ended) from error

    def require_session(self) -> None:
        """Raises when the session has ended."""
        if not self._sessions.is_live(self._session):
            raise SignedOut(self._session.ended)

    @asynccontextmanager
    async def stream(self, path: str, **params: Any) -> AsyncIterator[httpx.Response]:
        """A download, passed on piece by piece."""
        self.require_session()
        async with self._gateway.open(
            "GET", path, self._session.api_key, params=params, wait_seconds=LONG_SECONDS
        ) as got:
            if not got.is_success:
                raise problem_of(got.status_code, await got.aread())
            yield got

    async def get(self, path: str, **params: Any) -> Json:
        """A document."""
        return dict(await self.ask("GET", path, params=params))

    async def read(self, kind: type[R], path: str, **params: Any) -> R:
        """A document as a record."""
        return kind.from_json(await self.get(path, **params))

    async def read_page(self, kind: type[R], path: str, *, limit: int = 100, **params: Any) -> list[R]:
        """The first records of a list."""
        result, _ = await self.page(path, limit=limit, **params)
        return [kind.from_json(item) for item in result]

    async def read_all(self, kind: type[R], path: str, *, most: int = 100_000, **params: Any) -> list[R]:
        """A whole list of records, at most so many."""
        result = await self.all(path, most=most, **params)
        return [kind.from_json(item) for item in result]

    async def find(self, path: str, **params: Any) -> Json | None:
        """A document, or None when there is none."""
        try:
            return await self.get(path, **params)
        except NotFound:
            return None

    async def page(self, path: str, *, limit: int = 100, **params: Any) -> tuple[list[Json], str]:
        """A page of a list, and the cursor of the next one."""
        document = await self.get(path, limit=limit, **params)
        return list(document["items"]), str(document.get("next_cursor", ""))

    async def all(self, path: str, *, most: int = 100_000, **params: Any) -> list[Json]:
        """A whole list, at most so many."""
        items: list[Json] = []
        cursor = ""
        while True:
            more, cursor = await self.page(path, limit=PAGE_ITEMS, **params, cursor=cursor)
            items += more
            if not cursor or len(items) >= most:
                return items[:most]

    # --- health ------------------------------------------------------------------------------------------------------

    async def health(self) -> Json:
        """Which services answer; an answer also when some do not."""
        async with self._gateway.open("GET", "/health/ready", "") as response:
            content = await response.aread()
        return dict(json.loads(content))

    async def contract(self) -> Json:
        """The gateway's OpenAPI document."""
        return dict(await self._gateway.ask("GET", "/openapi.json"))

    async def count_blobs(self) -> Json:
        """How much is stored, and how much of it nobody needs; removes nothing."""
        return dict(await self.ask("POST", "/v1/blobs/sweep", json={"dry_run": True}, wait_seconds=LONG_SECONDS))

    # --- tasks -------------------------------------------------------------------------------------------------------

    async def task(self, task_id: str) -> Json:
        """One task."""
        return await self.get(f"/v1/tasks/{task_id}")

    async def create_task(self, specification: Json) -> Json:
        """A new task."""
        return dict(await self.ask("POST", "/v1/tasks", json=specification, wait_seconds=60.0))

    async def start_task(self, task_id: str) -> Json:
        """Starts a task."""
        return dict(await self.ask("POST", f"/v1/tasks/{task_id}/start", wait_seconds=60.0))

    async def cancel_task(self, task_id: str, why: str) -> Json:
        """Ends a task now."""
        return dict(await self.ask("POST", f"/v1/tasks/{task_id}/cancel", json={"why": why}, wait_seconds=60.0))

    async def plan(self, task_id: str, version: int = 0) -> Json:
        """A task's plan."""
        return await self.get(f"/v1/tasks/{task_id}/plan", version=version)

    async def rounds(self, task_id: str) -> list[Json]:
        """A task's rounds in order."""
        return await self.all(f"/v1/tasks/{task_id}/rounds")

    async def events(self, task_id: str, after: int, wait_seconds: float = 0.0) -> list[Json]:
        """What happened to a task since event `after`; waits for the first."""
        params = {"after": after, "limit": PAGE_ITEMS, "wait": wait_seconds}
        path = f"/v1/tasks/{task_id}/events"
        return list((await self.ask("GET", path, params=params, wait_seconds=wait_seconds))["items"])

    async def upload_model(self, model: bytes) -> str:
        """Stores an initial model; its digest."""
        return str((await self.ask("POST", "/v1/models", content=model, wait_seconds=LONG_SECONDS))["digest"])

    async def what_if(self, solver: str, body: Json) -> Json:
        """A solver's answer."""
        return dict(await self.ask("POST", f"/v1/what-if/{solver}", json=body, wait_seconds=LONG_SECONDS))

    # --- trust -------------------------------------------------------------------------------------------------------

    async def graph(self, *, task: str = "", owner: str = "", at: float = 0.0) -> Json:
        """Devices and ties."""
        return dict(
            await self.ask(
                "GET", "/v1/trust/graph", params={"task": task, "owner": owner, "at": at}, wait_seconds=LONG_SECONDS
            )
        )

    async def verify_audit(self) -> Json:
        """Whether the audit log is sound."""
        return dict(await self.ask("POST", "/v1/audit/verification", wait_seconds=LONG_SECONDS))

    # --- money -------------------------------------------------------------------------------------------------------

    async def verify_book(self) -> Verification:
        """Whether the book is sound."""
        return Verification.from_json(await self.ask("POST", "/v1/payments/verification", wait_seconds=LONG_SECONDS))
