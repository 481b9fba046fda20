"""The platform over REST, for admins, publishers and devices: one method per route, plain dictionaries back.

    with Platform("http://127.0.0.1:8080", api_key) as platform:
        task = platform.create_task(name="digits", preset="fedavg", model_digests=[digest], rounds=10)

Errors are those of `coterie.errors`. Models and updates are sent from files and fetched into a content-addressed
cache, piece by piece.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from coterie.cache import BlobCache
from coterie.errors import NotFound
from coterie.transport import Backoff, Stop, Transport
from coterie.work import Work

Json: TypeAlias = dict[str, Any]
PIECE_BYTES = 1 << 20
PAGE_ITEMS = 500
ENDED = ("finished", "failed", "cancelled")


class Platform:
    """A caller's view of the platform; safe to use from several threads."""

    def __init__(
        self,
        url: str,
        api_key: str = "",
        *,
        cache: BlobCache | None = None,
        backoff: Backoff | None = None,
        stop: Stop | None = None,
        verify: bool | str = True,
    ) -> None:
        """`verify` is as in httpx: True, False, or a file with the CA's certificates."""
        self._transport = Transport(url, api_key, backoff=backoff, stop=stop, verify=verify)
        self.url, self.cache = self._transport.url, cache or BlobCache()

    def __enter__(self) -> Platform:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives connections back."""
        self._transport.close()

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Any route: the answer's JSON; options as in `Transport.send`."""
        return self._transport.send(method, path, **options)

    def pages(self, path: str, **params: Any) -> Iterator[Json]:
        """Every item of a paged list."""
        cursor = ""
        while True:
            page = self.request("GET", path, params={"limit": PAGE_ITEMS, **params, "cursor": cursor})
            yield from page["items"]
            cursor = page.get("next_cursor", "")
            if not cursor:
                return

    # --- identity ----------------------------------------------------------------------------------------------------

    def health(self) -> Json:
        """Whether every service answers; raises `Unreachable` when it stays otherwise."""
        return dict(self.request("GET", "/health/ready"))

    def me(self) -> Json:
        """Whom the key speaks for."""
        return dict(self.request("GET", "/v1/me"))

    def create_owner(self, name: str, *, sharing: str = "own") -> Json:
        """An owner; the same name gives the owner that exists."""
        return dict(self.request("POST", "/v1/owners", json={"name": name, "sharing": sharing}, idempotent=True))

    def owners(self) -> Iterator[Json]:
        """All owners."""
        return self.pages("/v1/owners")

    def issue_token(self, owner_id: str, *, uses: int = 1, lifetime_seconds: float = 86_400.0) -> Json:
        """An enrolment token for an owner's devices; its secret is shown this once."""
        body = {"uses": uses, "lifetime_seconds": lifetime_seconds}
        return dict(self.request("POST", f"/v1/owners/{owner_id}/tokens", json=body))

    def create_key(self, role: str, name: str) -> Json:
        """An API key for an admin or a publisher; its secret is shown this once."""
        return dict(self.request("POST", "/v1/keys", json={"role": role, "name": name}))

    def register_device(self, body: Mapping[str, Any]) -> Json:
        """A device and its API key, by enrolment token; safe to repeat with the same token and signing key."""
        return dict(self.request("POST", "/v1/devices", json=dict(body), idempotent=True))

    def devices(self, *, owner: str = "", state: str = "") -> Iterator[Json]:
        """All devices, of one owner or all."""
        return self.pages("/v1/devices", owner=owner, state=state)

    def device(self, device_id: str) -> Json:
        """One device."""
        return dict(self.request("GET", f"/v1/devices/{device_id}"))

    def update_device(self, device_id: str, **changes: Any) -> Json:
        """Changes a device's location or capabilities; what is left out stays."""
        return dict(self.request("PATCH", f"/v1/devices/{device_id}", json=changes, idempotent=True))

    def revoke_device(self, device_id: str, why: str = "") -> Json:
        """Ends a device's part in everything."""
        path = f"/v1/devices/{device_id}/revocation"
        return dict(self.request("POST", path, json={"why": why}, idempotent=True))

    def heartbeat(self, device_id: str) -> None:
        """Says that the device is alive."""
        self.request("POST", f"/v1/devices/{device_id}/heartbeat", idempotent=True)

    def record_interactions(self, interactions: Iterable[Mapping[str, Any]]) -> Json:
        """Records what devices did together; repeats are ignored by id."""
        body = {"interactions": [dict(each) for each in interactions]}
        return dict(self.request("POST", "/v1/interactions", json=body, idempotent=True))

    def trust_peers(self, device_id: str) -> list[Json]:
        """How far a device trusts those it knows."""
        return list(self.request("GET", f"/v1/trust/peers/{device_id}", params={"limit": PAGE_ITEMS})["items"])

    # --- tasks -------------------------------------------------------------------------------------------------------

    def upload_model(self, model: bytes | Path) -> str:
        """Stores an initial model (a safetensors file); its digest."""
        digest, content = _body(model)
        answer = self._transport.send(
            "POST", "/v1/models", headers={"Coterie-Digest": digest}, content=content, idempotent=True
        )
        return str(answer["digest"])

    def download_model(self, digest: str) -> Path:
        """Path of a model in the cache, fetched and checked if it is not there."""
        return self._download(f"/v1/models/{digest}", digest)

    def create_task(self, **specification: Any) -> Json:
        """A task; the same name and specification give the task that exists."""
        return dict(self.request("POST", "/v1/tasks", json=specification, idempotent=True))

    def tasks(self, *, state: str = "") -> Iterator[Json]:
        """Tasks, newest first."""
        return self.pages("/v1/tasks", state=state)

    def task(self, task_id: str) -> Json:
        """One task."""
        return dict(self.request("GET", f"/v1/tasks/{task_id}"))

    def find_task(self, id_or_name: str) -> Json:
        """A task by its id, or the newest of that name."""
        if id_or_name.startswith("tsk_"):
            return self.task(id_or_name)
        for task in self.tasks():
            if task["specification"]["name"] == id_or_name:
                return task
        raise NotFound(f"no task is called {id_or_name!r}; `coterie task list` shows those there are", status=404)

    def start_task(self, task_id: str) -> Json:
        """Starts a task that has enough devices."""
        return dict(self.request("POST", f"/v1/tasks/{task_id}/start"))

    def cancel_task(self, task_id: str, why: str = "") -> Json:
        """Ends a task now."""
        return dict(self.request("POST", f"/v1/tasks/{task_id}/cancel", json={"why": why}))

    def plan(self, task_id: str, version: int = 0) -> Json:
        """A task's plan, the newest by default."""
        return dict(self.request("GET", f"/v1/tasks/{task_id}/plan", params={"version": version}))

    def enrol(self, task_id: str, device_id: str, *, samples: int, non_iid: float = 0.0) -> Json:
        """Enrols a device; repeating it changes the samples."""
        body = {"samples": samples, "non_iid": non_iid}
        return dict(self.request("PUT", f"/v1/tasks/{task_id}/enrolments/{device_id}", json=body))

    def withdraw(self, task_id: str, device_id: str) -> Json:
        """Takes a device out of a task."""
        return dict(self.request("DELETE", f"/v1/tasks/{task_id}/enrolments/{device_id}"))

    def enrolments(self, task_id: str) -> Iterator[Json]:
        """Devices of a task."""
        return self.pages(f"/v1/tasks/{task_id}/enrolments")

    def rounds(self, task_id: str) -> Iterator[Json]:
        """Rounds of a task in order."""
        return self.pages(f"/v1/tasks/{task_id}/rounds")

    def round(self, task_id: str, number: int) -> Json:
        """A round with everybody in it."""
        return dict(self.request("GET", f"/v1/tasks/{task_id}/rounds/{number}"))

    def participations(self, task_id: str, device_id: str) -> Iterator[Json]:
        """One device's part in every round of a task, in order; `model_index` is its identity there."""
        return self.pages(f"/v1/tasks/{task_id}/devices/{device_id}/rounds")

    def events(self, task_id: str, *, after: int = 0, wait_seconds: float = 0.0) -> list[Json]:
        """Events of a task after a number; waits for the first."""
        path, params = f"/v1/tasks/{task_id}/events", {"after": after, "wait": wait_seconds, "limit": PAGE_ITEMS}
        return list(self.request("GET", path, params=params, wait_seconds=wait_seconds)["items"])

    def models(self, task_id: str) -> Iterator[Json]:
        """Model versions of a task, in order."""
        return self.pages(f"/v1/tasks/{task_id}/models")

    def wait_for_end(self, task_id: str) -> Json:
        """The task once it has ended; sleeps on its event log."""
        after = 0
        while True:
            task = self.task(task_id)
            if task["state"] in ENDED:
                return task
            events = self.events(task_id, after=after, wait_seconds=20.0)
            after = events[-1]["number"] if events else after

    # --- work --------------------------------------------------------------------------------------------------------

    def work(self, *, tasks: Iterable[str] = (), wait_seconds: float = 0.0) -> Work:
        """What the calling device is to do next; waits for it."""
        params = {"wait": wait_seconds, "task": list(tasks)}
        return Work.from_json(self.request("GET", "/v1/work", params=params, wait_seconds=wait_seconds))

    def put_update(
        self, task_id: str, round: int, device_id: str, *, report: str, body: bytes | Path | None = None
    ) -> Json:
        """Hands an update in: "accepted", "repeated" or "late"; safe to repeat with the same bytes."""
        headers, content = {"Coterie-Update": report}, None
        if body is not None:
            headers["Coterie-Digest"], content = _body(body)
        path = f"/v1/tasks/{task_id}/rounds/{round}/updates/{device_id}"
        return dict(self._transport.send("PUT", path, headers=headers, content=content))

    def decline(self, task_id: str, round: int, why: str) -> None:
        """Says that the calling device will not deliver this round."""
        body = {"why": why[:2000]}
        self.request("POST", f"/v1/tasks/{task_id}/rounds/{round}/decline", json=body, idempotent=True)

    def send_letter(
        self, task_id: str, round: int, recipient: str, letter: bytes, *, kind: str, plan_version: int
    ) -> Json:
        """Sends sealed bytes to a device; safe to repeat with the same bytes."""
        digest, content = _body(letter)
        path, params = (
            f"/v1/tasks/{task_id}/rounds/{round}/letters/{recipient}",
            {"kind": kind, "plan_version": plan_version},
        )
        headers = {"Coterie-Digest": digest}
        return dict(self._transport.send("PUT", path, params=params, headers=headers, content=content))

    def letters(self, task_id: str, round: int, *, known: Iterable[str] = (), wait_seconds: float = 0.0) -> Json:
        """Letters to the calling device that it does not know yet, the round's state, and who will write no more."""
        params = {"wait": wait_seconds, "known": list(known)}
        path = f"/v1/tasks/{task_id}/rounds/{round}/letters"
        return dict(self.request("GET", path, params=params, wait_seconds=wait_seconds))

    def download_letter(self, letter_id: str, digest: str) -> Path:
        """Path of a letter's sealed bytes in the cache."""
        return self._download(f"/v1/letters/{letter_id}", digest)

    def report_links(self, task_id: str, links: Iterable[tuple[str, str, float]]) -> None:
        """Seconds one message of a task really took between devices; the next plan heeds them."""
        body = {"links": [{"device_a": a, "device_b": b, "seconds": seconds} for a, b, seconds in links]}
        self.request("POST", f"/v1/tasks/{task_id}/links", json=body, idempotent=True)

    def privacy(self, device_id: str, *, delta: float = 0.0) -> Json:
        """Privacy the device has spent, as the platform accounts for it."""
        return dict(self.request("GET", f"/v1/privacy/{device_id}", params={"delta": delta}))

    def _download(self, path: str, digest: str) -> Path:
        def pieces(store: Any) -> None:
            self._transport.send("GET", path, consume=lambda response: store(response.iter_bytes(PIECE_BYTES)))

        return self.cache.fetch(digest, pieces)


def _body(source: bytes | Path) -> tuple[str, Any]:
    """Digest of what is to be sent, and a function that makes the body anew for each attempt."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest(), lambda: source
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest, lambda: source.open("rb")
