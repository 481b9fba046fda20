"""What needs a person, gravest first: failed tasks, disputed verdicts, certificates and keys about to end, changed
keys, odd payments, tasks that wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from services.console.domain.names import Names
from services.console.domain.words import count

WAITING_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0
RENEW_SECONDS = 30 * DAY_SECONDS
"""How long before a certificate or an API key ends somebody should know."""


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing to look at."""

    icon: str
    tone: str
    title: str
    what: str
    href: str = ""
    at: float = 0.0


def matters_of(
    tasks: Iterable[Mapping[str, Any]],
    names: Names,
    anomalies: Iterable[str],
    now: float,
    recent_seconds: float,
    disputes: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]] = (),
    builds: Mapping[str, Mapping[str, Any]] | None = None,
    keys: Iterable[Mapping[str, Any]] = (),
) -> list[Matter]:
    """Everything to look at, from what the platform says now.

    `disputes` are tasks with an event each, `builds` what services say of themselves, `keys` those of staff.
    """
    return [
        *_failed(tasks, now - recent_seconds),
        *_disputed(disputes, names, now - recent_seconds),
        *_ending_certificates(builds or {}, now),
        *_ending_keys(keys, now),
        *_changed_keys(names),
        *_odd_payments(list(anomalies)),
        *_waiting(tasks, now),
    ]


def _failed(tasks: Iterable[Mapping[str, Any]], since: float) -> list[Matter]:
    return [
        Matter(
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


def _disputed(
    disputes: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], names: Names, since: float
) -> list[Matter]:
    """A member says that its head's verdict is wrong: one of the two does not tell the truth."""
    return [
        Matter(
            "gavel",
            "warn",
            f"{names.device(event['device_id'])} disputes a verdict in {task['specification']['name']}",
            f"Round {event['round']}: it {event['message']}",
            f"/tasks/{task['id']}",
            event["at"],
        )
        for task, event in disputes
        if event["at"] >= since
    ]


def _ending_certificates(builds: Mapping[str, Mapping[str, Any]], now: float) -> list[Matter]:
    """Services that nobody could speak to any more when their certificate ends."""
    return [
        Matter(
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


def _ending_keys(keys: Iterable[Mapping[str, Any]], now: float) -> list[Matter]:
    """API keys that end soon and were not replaced: their holder's newest one, still at work."""
    live = [each for each in keys if not each["revoked_at"] and not 0.0 < each["expires_at"] <= now]
    later = {each["principal"]["subject"] for each in live if not 0.0 < each["expires_at"] < now + RENEW_SECONDS}
    return [
        Matter(
            "key_off",
            "warn",
            f"The key of {each['principal']['name']} {_ending(each['expires_at'], now)}",
            f"A {each['principal']['role']}'s. `coterie keys rotate {each['id']}` makes the next one without a gap.",
        )
        for each in live
        if each["expires_at"] and each["principal"]["subject"] not in later
    ]


def _odd_payments(lines: list[str]) -> list[Matter]:
    if not lines:
        return []
    title = "A payment looks odd" if len(lines) == 1 else f"{len(lines)} payments look odd"
    return [Matter("payments", "warn", title, "Each is far from the median of its round.", "/payments?show=odd")]


def _changed_keys(names: Names) -> list[Matter]:
    """Devices whose keys are not those they registered with: peers should compare fingerprints."""
    return [
        Matter(
            "key",
            "warn",
            f"{device['name']} changed its keys",
            f"Version {device['key_version']}. Ask its owner, {names.owner(device['owner_id'])}, whether they did it.",
            f"/trust?device={device['id']}",
        )
        for device in names.devices.values()
        if device["key_version"] > 1 and device["state"] == "active"
    ]


def _waiting(tasks: Iterable[Mapping[str, Any]], now: float) -> list[Matter]:
    return [
        Matter(
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
