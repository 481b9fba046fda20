"""What needs a person, gravest first: failed tasks, disputed verdicts, certificates and keys about to end, changed
keys, devices at or near their privacy limit, odd payments, tasks that wait."""

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
"""How long before a certificate or an API key ends somebody should know."""
DISPUTED, DECLINED = "verdict.disputed", "work.declined"
NEAR_SHARE = 0.8
"""From this share of a limit on a device is near it."""
_MOST_NAMED = 3


Happening: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A task, and an event of it."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to look at."""

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
    events: Iterable[Happening] = (),
    builds: Mapping[str, Mapping[str, Any]] | None = None,
    keys: Iterable[Mapping[str, Any]] = (),
    reports: Iterable[Mapping[str, Any]] = (),
) -> list[Alert]:
    """Everything to look at, from what the platform says now.

    `events` are tasks with an event each, `builds` what services say of themselves, `keys` those of staff, `reports`
    devices' privacy at the δ of the limit they begin with.
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
            "error",
            "bad",
            f"{task['specification']['name']} failed",
            task["reason"] or "no reason was given",
            f"/tasks/{task['id']}",
            task["ended_at"],
        )
        for task in tasks
        if task["state"] == "failed" and task["ended_at"] >= since
    ]


def _disputed(disputes: Iterable[Happening], names: Names) -> list[Alert]:
    """A member says that its head's verdict is wrong: one of the two does not tell the truth."""
    return [
        Alert(
            "gavel",
            "warn",
            f"{names.device(event['device_id'])} disputes a verdict in {task['specification']['name']}",
            f"Round {event['round']}: it {event['message']}",
            f"/tasks/{task['id']}",
            event["at"],
        )
        for task, event in disputes
    ]


def _ending_certificates(builds: Mapping[str, Mapping[str, Any]], now: float) -> list[Alert]:
    """Services that nobody could speak to any more when their certificate ends."""
    return [
        Alert(
            "workspace_premium",
            "bad" if ends <= now else "warn",
            f"The certificate of {name} {_ending(ends, now)}",
            "Make new ones with `coterie certs`; services take them while they run.",
            "/health",
        )
        for name, ends in ((name, float(told.get("certificate_ends_at") or 0.0)) for name, told in builds.items())
        if 0.0 < ends < now + RENEW_SECONDS
    ]


def _ending(ends: float, now: float) -> str:
    days = int((ends - now) / DAY_SECONDS)
    return "has ended" if ends <= now else "ends today" if not days else f"ends in {count(days, 'day')}"


def _ending_keys(keys: Iterable[Mapping[str, Any]], now: float) -> list[Alert]:
    """API keys that end soon and were not replaced: their holder's newest one, still at work."""
    live = [key for key in keys if not key["revoked_at"] and not 0.0 < key["expires_at"] <= now]
    later = {item["principal"]["subject"] for item in live if not 0.0 < item["expires_at"] < now + RENEW_SECONDS}
    return [
        Alert(
            "key_off",
            "warn",
            f"The key of {item['principal']['name']} {_ending(item['expires_at'], now)}",
            f"A {item['principal']['role']}'s. `coterie keys rotate {item['id']}` makes the next one without a gap.",
        )
        for item in live
        if item["expires_at"] and item["principal"]["subject"] not in later
    ]


def _is_beyond_limit(event: Mapping[str, Any]) -> bool:
    return bool(event["kind"] == DECLINED and event["message"] == BEYOND_LIMIT)


def _at_their_limit(spent: Mapping[str, Happening], names: Names) -> list[Alert]:
    """Devices that declined work for their owner's limit: they take part in nothing that asks for as much."""
    return [
        Alert(
            "shield",
            "warn",
            f"{names.device(device)} is at its owner's privacy limit",
            f"It declined round {event['round']} of {task['specification']['name']}. The limit stays on the device; "
            "its owner alone may raise it.",
            f"/tasks/{task['id']}?tab=events",
            event["at"],
        )
        for device, (task, event) in spent.items()
    ]


def _near_a_limit(reports: Iterable[Mapping[str, Any]], names: Names) -> list[Alert]:
    """Devices near the limit that all begin with. What their owners chose instead stays on the device."""
    near = [(share, report) for report in reports if (share := share_of_limit(report)) >= NEAR_SHARE]
    if not near:
        return []
    near.sort(key=lambda item: -item[0])
    told = [f"{names.device(entry['device_id'])} (ε {number(entry['epsilon_replaced'], 3)})" for _, entry in near]
    more = f" and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    first = str(near[0][1]["device_id"])
    return [
        Alert(
            "shield",
            "info",
            f"{count(len(near), 'device is', 'devices are')} near the privacy limit of ε = {DEFAULT_LIMIT.epsilon:g}",
            f"{', '.join(told[:_MOST_NAMED])}{more}. Devices begin with that limit; one that its owner chose instead "
            "stays on the device, and the platform learns of it when work is declined.",
            f"/privacy?device={first}" if len(near) == 1 else "/privacy",
        )
    ]


def _odd_payments(lines: list[str]) -> list[Alert]:
    if not lines:
        return []
    title = "A payment looks odd" if len(lines) == 1 else f"{len(lines)} payments look odd"
    return [Alert("payments", "warn", title, "Each is far from the median of its round.", "/payments?show=odd")]


def _changed_keys(names: Names) -> list[Alert]:
    """Devices whose keys are not those they registered with: peers should compare fingerprints."""
    return [
        Alert(
            "key",
            "warn",
            f"{device['name']} changed its keys",
            f"Version {device['key_version']}. Ask its owner, {names.owner(device['owner_id'])}, whether they did it.",
            f"/trust?device={device['id']}",
        )
        for device in names.devices.values()
        if device["key_version"] > 1 and device["state"] == "active"
    ]


def _waiting(tasks: Iterable[Mapping[str, Any]], now: float) -> list[Alert]:
    return [
        Alert(
            "hourglass_empty",
            "info",
            f"{task['specification']['name']} waits for devices",
            f"{task['enrolled']} of at least {task['specification']['min_devices']} have joined.",
            f"/tasks/{task['id']}",
            task["created_at"],
        )
        for task in tasks
        if task["state"] == "created" and now - task["created_at"] > WAITING_SECONDS
    ]
