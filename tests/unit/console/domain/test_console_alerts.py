"""Alerts: certificates and keys that expire soon, devices at and near their privacy limit."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.privacy.spending import BEYOND_LIMIT
from services.console.domain.alerts import DAY_SECONDS, Alert, list_alerts
from services.console.domain.limits import share_of_limit
from services.console.domain.names import Names

NOW = 1_800_000_000.0


def alerts(builds: dict[str, Any] | None = None, keys: list[dict[str, Any]] | None = None) -> list[str]:
    result = list_alerts([], Names(), [], NOW, 7 * DAY_SECONDS, (), builds, keys or [])
    return [item.title for item in result]


def key(name: str, days: float | None, *, revoked: bool = False) -> dict[str, Any]:
    return {
        "id": f"key_{name}",
        "principal": {"subject": f"pub_{name.rstrip('0123456789')}", "name": name, "role": "publisher"},
        "expires_at": 0.0 if days is None else NOW + days * DAY_SECONDS,
        "revoked_at": 1.0 if revoked else 0.0,
    }


@pytest.mark.parametrize(
    ("days", "expected"),
    [(31.0, []), (12.5, ["ends in 12 days"]), (1.5, ["ends in 1 day"]), (0.5, ["ends today"]), (-1.0, ["has ended"])],
)
def test_a_certificate_that_expires_soon_raises_an_alert(days: float, expected: list[str]) -> None:
    builds = {"trust": {"certificate_ends_at": NOW + days * DAY_SECONDS}, "pricing": {"certificate_ends_at": 0.0}}
    assert alerts(builds) == [f"The certificate of trust {item}" for item in expected]


def test_services_without_certificates_raise_no_alert() -> None:
    assert alerts({"gateway": {"version": "1"}}) == []


def test_keys_that_expire_soon_raise_alerts_unless_replaced() -> None:
    assert alerts(keys=[key("library", 3.0)]) == ["The key of library ends in 3 days"]
    replaced = [key("library1", 3.0), key("library2", 300.0)]
    over = [key("old", -3.0), key("gone", 3.0, revoked=True), key("forever", None)]
    assert alerts(keys=[*replaced, *over]) == []


TASK = {"id": "tsk_1", "specification": {"name": "digits"}, "state": "running", "ended_at": 0.0}
NAMES = Names({f"dev_{name}": {"name": name, "key_version": 1, "state": "active"} for name in "abcdef"})


def limits(events: list[dict[str, Any]], spent: dict[str, float | str]) -> list[Alert]:
    reports = [{"device_id": f"dev_{name}", "epsilon_replaced": epsilon} for name, epsilon in spent.items()]
    happenings = [(TASK, {"round": 3, "at": NOW, "kind": "work.declined", **event}) for event in events]
    return list_alerts([], NAMES, [], NOW, 7 * DAY_SECONDS, happenings, reports=reports)


def test_a_device_that_declined_for_its_limit_is_at_its_limit() -> None:
    declined = {"device_id": "dev_a", "message": BEYOND_LIMIT}
    (result,) = limits([declined, declined], {"a": 7.9})
    assert result.title == "a is at its owner's privacy limit"
    assert "round 3 of digits" in result.what
    assert limits([{"device_id": "dev_a", "message": "the battery is low"}], {}) == []
    assert limits([declined | {"at": NOW - 8 * DAY_SECONDS}], {}) == []


@pytest.mark.parametrize(
    ("spent", "expected"),
    [
        ({"a": 6.39}, None),
        ({"a": 6.4}, "a (ε 6.4). "),
        ({"a": 9.0, "b": "inf", "c": 7.0}, "a (ε 9), c (ε 7). "),
        (dict.fromkeys("abcdef", 7.0), "a (ε 7), b (ε 7), c (ε 7) and 3 more. "),
    ],
)
def test_devices_near_the_default_limit_are_named_nearest_first(
    spent: dict[str, float | str], expected: str | None
) -> None:
    result = limits([], spent)
    assert [item.what.partition("This is the default")[0] for item in result] == ([expected] if expected else [])
    assert all("stays on the device" in item.what for item in result)


def test_a_release_without_noise_has_no_share_of_a_limit() -> None:
    assert share_of_limit({"epsilon_replaced": "inf"}) == 0.0
    assert share_of_limit({"epsilon_replaced": 2.0}) == 0.25
