"""Alerts, most severe first: failed tasks, disputed verdicts, certificates and keys that expire soon, changed keys,
devices at or near their privacy limit, odd payments, tasks that wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from coterie.privacy.spending import BEYOND_LIMIT
from services.console.domain.limits import DEFAULT_LIMIT, share_of_limit
from services.console.domain.names import Names
from services.console.domain.words import count, number

WAITING_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0
RENEW_SECONDS = 30 * DAY_SECONDS
"""How long before its end an expiring certificate or API key raises an alert."""
DISPUTED, DECLINED = "verdict.disputed", "work.declined"
NEAR_SHARE = 0.8
"""A device that has spent this share of a limit is near it."""
_MOST_NAMED = 3


TaskEvent: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A task and one of its events."""


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that needs an administrator's or publisher's attention."""

    icon: str
    tone: str
    title: str
    what: str
    href: str = ""
    at: float = 0.0


def list_alerts(
    tasks: Iterable[Mapping[str, Any]],
    names: Names,
    anomalies: Iterable[str],
    now: float,
    recent_seconds: float,
    events: Iterable[TaskEvent] = (),
    builds: Mapping[str, Mapping[str, Any]] | None = None,
    keys: Iterable[Mapping[str, Any]] = (),
    reports: Iterable[Mapping[str, Any]] = (),
) -> list[Alert]:
    """Return all alerts from the current state of the platform.

    `builds` are the versions of services, `keys` the API keys of staff, `reports` the privacy reports of devices at the
    δ of the default limit.
    """
    recent = [(task, event) for task, event in events if event["at"] >= now - recent_seconds]
    spent = {str(event["device_id"]): (task, event) for task, event in recent if _is_beyond_limit(event)}
    return [
        *_failed(tasks, now - recent_seconds),
        *_disputed([item for item in recent if item[1]["kind"] == DISPUTED], names),
        *_ending_certificates(builds or {}, now),
        *_ending_keys(keys, now),
        *_changed_keys(names),
        *_at_their_limit(spent, names),
        *_near_a_limit([report for report in reports if report["device_id"] not in spent], names),
        *_odd_payments(list(anomalies)),
        *_waiting(tasks, now),
    ]


def _failed(tasks: Iterable[Mapping[str, Any]], since: float) -> list[Alert]:
    return [
        Alert(
            icon="error",
            tone="bad",
            title=f"{task['specification']['name']} failed",
            what=task["reason"] or "No reason was given.",
            href=f"/tasks/{task['id']}",
            at=task["ended_at"],
        )
        for task in tasks
        if task["state"] == "failed" and task["ended_at"] >= since
    ]


def _disputed(disputes: Iterable[TaskEvent], names: Names) -> list[Alert]:
    """Return disputes between a member and its head: one of the two is dishonest."""
    return [
        Alert(
            icon="gavel",
            tone="warn",
            title=f"{names.device(event['device_id'])} disputes a verdict in {task['specification']['name']}",
            what=f"Round {event['round']}: it {event['message']}",
            href=f"/tasks/{task['id']}",
            at=event["at"],
        )
        for task, event in disputes
    ]


def _ending_certificates(builds: Mapping[str, Mapping[str, Any]], now: float) -> list[Alert]:
    """Return services whose certificate expires soon; without a valid one they are unreachable."""
    return [
        Alert(
            "workspace_premium",
            "bad" if ends <= now else "warn",
            f"The certificate of {name} {_ending(ends, now)}",
            "Make new certificates with `coterie certs`; running services load them.",
            "/health",
        )
        for name, ends in ((name, float(build.get("certificate_ends_at") or 0.0)) for name, build in builds.items())
        if 0.0 < ends < now + RENEW_SECONDS
    ]


def _ending(ends: float, now: float) -> str:
    days = int((ends - now) / DAY_SECONDS)
    return "has ended" if ends <= now else "ends today" if not days else f"ends in {count(days, 'day')}"


def _ending_keys(keys: Iterable[Mapping[str, Any]], now: float) -> list[Alert]:
    """Return API keys that expire soon and have no replacement."""
    live = [key for key in keys if not key["revoked_at"] and not 0.0 < key["expires_at"] <= now]
    later = {item["principal"]["subject"] for item in live if not 0.0 < item["expires_at"] < now + RENEW_SECONDS}
    return [
        Alert(
            "key_off",
            "warn",
            f"The key of {item['principal']['name']} {_ending(item['expires_at'], now)}",
            f"It belongs to a {item['principal']['role']}. Replace it with `coterie keys rotate {item['id']}`.",
        )
        for item in live
        if item["expires_at"] and item["principal"]["subject"] not in later
    ]


def _is_beyond_limit(event: Mapping[str, Any]) -> bool:
    return bool(event["kind"] == DECLINED and event["message"] == BEYOND_LIMIT)


def _at_their_limit(spent: Mapping[str, TaskEvent], names: Names) -> list[Alert]:
    """Return devices that declined work because of their owner's limit."""
    return [
        Alert(
            icon="shield",
            tone="warn",
            title=f"{names.device(device)} is at its owner's privacy limit",
            what=f"It declined round {event['round']} of {task['specification']['name']}. Only its owner can raise the "
            "limit, on the device.",
            href=f"/tasks/{task['id']}?tab=events",
            at=event["at"],
        )
        for device, (task, event) in spent.items()
    ]


def _near_a_limit(reports: Iterable[Mapping[str, Any]], names: Names) -> list[Alert]:
    """Return devices near the default limit; the platform does not know the limits that owners chose."""
    near = [(share, report) for report in reports if (share := share_of_limit(report)) >= NEAR_SHARE]
    if not near:
        return []
    near.sort(key=lambda item: -item[0])
    devices = [f"{names.device(entry['device_id'])} (ε {number(entry['epsilon_replaced'], 3)})" for _, entry in near]
    more = f" and {len(devices) - _MOST_NAMED} more" if len(devices) > _MOST_NAMED else ""
    first = str(near[0][1]["device_id"])
    return [
        Alert(
            "shield",
            "info",
            f"{count(len(near), 'device is', 'devices are')} near the privacy limit of ε = {DEFAULT_LIMIT.epsilon:g}",
            f"{', '.join(devices[:_MOST_NAMED])}{more}. This is the default limit. An owner's own limit stays on the "
            "device; the platform learns of it when the device declines work.",
            f"/privacy?device={first}" if len(near) == 1 else "/privacy",
        )
    ]


def _odd_payments(lines: list[str]) -> list[Alert]:
    if not lines:
        return []
    title = "A payment looks odd" if len(lines) == 1 else f"{len(lines)} payments look odd"
    return [Alert("payments", "warn", title, "Each is far from the median of its round.", "/payments?show=odd")]


def _changed_keys(names: Names) -> list[Alert]:
    """Return devices that changed their keys after registration: peers should compare fingerprints."""
    return [
        Alert(
            "key",
            "warn",
            f"{device['name']} changed its keys",
            f"Key version {device['key_version']}. Ask its owner, {names.owner(device['owner_id'])}, to confirm it.",
            f"/trust?device={device['id']}",
        )
        for device in names.devices.values()
        if device["key_version"] > 1 and device["state"] == "active"
    ]


def _waiting(tasks: Iterable[Mapping[str, Any]], now: float) -> list[Alert]:
    return [
        Alert(
            icon="hourglass_empty",
            tone="info",
            title=f"{task['specification']['name']} is waiting for devices",
            what=f"{task['enrolled']} of at least {task['specification']['min_devices']} have joined.",
            href=f"/tasks/{task['id']}",
            at=task["created_at"],
        )
        for task in tasks
        if task["state"] == "created" and now - task["created_at"] > WAITING_SECONDS
    ]
