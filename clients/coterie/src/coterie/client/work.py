"""Work of a device: poll for work, deliver updates, exchange letters, report privacy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from coterie.client.rest import RestClient, promised
from coterie.records import Letter, Letters, PrivacyReport, UpdateOutcome, Work

MOST_WHY = 2000


class WorkApi(RestClient):
    """Work, updates and letters of the calling device."""

    def work(self, *, tasks: Iterable[str] = (), wait_seconds: float = 0.0, clerk: bool = False) -> Work:
        """What the calling device is to do next; waits for it, or with `clerk` until it has duties as one."""
        params = {"wait": wait_seconds, "task": list(tasks), **({"clerk": True} if clerk else {})}
        return self.ask(Work, "GET", "/v1/work", params=params, wait_seconds=wait_seconds)

    def put_update(
        self, task_id: str, round: int, device_id: str, *, report: str, body: bytes | Path | None = None
    ) -> UpdateOutcome:
        """Hands an update in: "accepted", "repeated" or "late"; safe to repeat with the same bytes."""
        headers, content = {"Coterie-Update": report}, None
        if body is not None:
            headers["Coterie-Digest"], content = promised(body)
        path = f"/v1/tasks/{task_id}/rounds/{round}/updates/{device_id}"
        return self.ask(UpdateOutcome, "PUT", path, headers=headers, content=content)

    def decline(self, task_id: str, round: int, why: str, *, strangers: Iterable[str] = (), terms: str = "") -> None:
        """Says that the calling device will not deliver this round.

        `strangers` are devices its owner does not know; `terms`, the digest of those of a secure sum, say that it
        declines these and no others.
        """
        optional = {"strangers": list(strangers), "terms": terms}
        body = {"why": why[:MOST_WHY], **{name: value for name, value in optional.items() if value}}
        self.request("POST", f"/v1/tasks/{task_id}/rounds/{round}/decline", json=body, idempotent=True)

    def object(self, task_id: str, round: int, why: str) -> None:
        """Objects to what the calling device's head said of it in a round; safe to repeat."""
        body = {"why": why[:MOST_WHY]}
        self.request("POST", f"/v1/tasks/{task_id}/rounds/{round}/objection", json=body, idempotent=True)

    def send_letter(
        self, task_id: str, round: int, recipient: str, letter: bytes, *, kind: str, plan_version: int
    ) -> Letter:
        """Sends sealed bytes to a device; safe to repeat with the same bytes."""
        digest, content = promised(letter)
        path = f"/v1/tasks/{task_id}/rounds/{round}/letters/{recipient}"
        params = {"kind": kind, "plan_version": plan_version}
        return self.ask(Letter, "PUT", path, params=params, headers={"Coterie-Digest": digest}, content=content)

    def letters(
        self, task_id: str, round: int, *, known: Iterable[str] = (), wait_seconds: float = 0.0, plan_version: int = 0
    ) -> Letters:
        """Letters to the calling device that it does not know yet, the round's state, and who will write no more.

        Raises `RoundOver` once the plan it works by is replaced; 0 is whichever plan.
        """
        params = {"wait": wait_seconds, "known": list(known), "plan_version": plan_version}
        path = f"/v1/tasks/{task_id}/rounds/{round}/letters"
        return self.ask(Letters, "GET", path, params=params, wait_seconds=wait_seconds)

    def download_letter(self, letter_id: str, digest: str, *, most_bytes: int | None = None) -> Path:
        """Path of a letter's sealed bytes in the cache; larger ones are broken off."""
        return self._download(f"/v1/letters/{letter_id}", digest, most_bytes)

    def report_links(self, task_id: str, links: Iterable[tuple[str, str, float]]) -> None:
        """Seconds one message of a task really took between devices; the next plan heeds them."""
        body = {"links": [{"device_a": a, "device_b": b, "seconds": seconds} for a, b, seconds in links]}
        self.request("POST", f"/v1/tasks/{task_id}/links", json=body, idempotent=True)

    def report_way(
        self,
        task_id: str,
        device_id: str,
        cell_id: str,
        *,
        seconds: float,
        round_trip_seconds: float = 0.0,
        bytes_per_second: float = 0.0,
    ) -> None:
        """What an upload to a cell took, and of what that is made; tasks with `topology.times` "measured" heed it."""
        measured = {"round_trip_seconds": round_trip_seconds, "bytes_per_second": bytes_per_second}
        link = {"device_a": device_id, "device_b": cell_id, "seconds": seconds, **measured}
        self.request("POST", f"/v1/tasks/{task_id}/links", json={"links": [link]}, idempotent=True)

    def privacy(self, device_id: str, *, delta: float = 0.0) -> PrivacyReport:
        """Privacy the device has spent, as the platform accounts for it."""
        return self.ask(PrivacyReport, "GET", f"/v1/privacy/{device_id}", params={"delta": delta})
