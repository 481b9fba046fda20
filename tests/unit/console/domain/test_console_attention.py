"""What needs a person: certificates and keys that end soon."""

from __future__ import annotations

from typing import Any

import pytest

from services.console.domain.attention import DAY_SECONDS, matters_of
from services.console.domain.names import Names

NOW = 1_800_000_000.0


def matters(builds: dict[str, Any] | None = None, keys: list[dict[str, Any]] | None = None) -> list[str]:
    found = matters_of([], Names(), [], NOW, 7 * DAY_SECONDS, (), builds, keys or [])
    return [each.title for each in found]


def key(name: str, days: float | None, *, revoked: bool = False) -> dict[str, Any]:
    return {
        "id": f"key_{name}",
        "principal": {"subject": f"pub_{name.rstrip('0123456789')}", "name": name, "role": "publisher"},
        "expires_at": 0.0 if days is None else NOW + days * DAY_SECONDS,
        "revoked_at": 1.0 if revoked else 0.0,
    }


@pytest.mark.parametrize(
    ("days", "told"),
    [(31.0, []), (12.5, ["ends in 12 days"]), (1.5, ["ends in 1 day"]), (0.5, ["ends today"]), (-1.0, ["has ended"])],
)
def test_a_certificate_about_to_end_needs_somebody(days: float, told: list[str]) -> None:
    builds = {"trust": {"certificate_ends_at": NOW + days * DAY_SECONDS}, "pricing": {"certificate_ends_at": 0.0}}
    assert matters(builds) == [f"The certificate of trust {each}" for each in told]


def test_services_that_say_nothing_of_certificates_need_nobody() -> None:
    assert matters({"gateway": {"version": "1"}}) == []


def test_keys_about_to_end_need_somebody_unless_they_were_replaced() -> None:
    assert matters(keys=[key("library", 3.0)]) == ["The key of library ends in 3 days"]
    replaced = [key("library1", 3.0), key("library2", 300.0)]
    over = [key("old", -3.0), key("gone", 3.0, revoked=True), key("forever", None)]
    assert matters(keys=[*replaced, *over]) == []
