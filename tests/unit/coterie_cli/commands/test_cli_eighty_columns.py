"""On a terminal of 80 columns no id is wrapped, so it can be copied."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from typer.testing import CliRunner

from coterie.records import Device, KeyInfo, Me, Payment
from coterie_cli.commands import device, keys, payments
from coterie_cli.console import out
from tests.answers import made

IDS = [f"{kind}_01m7ny8td0br18521y1rbvpbzc" for kind in ("key", "pub", "dev", "own", "tsk")]
KEY, PUBLISHER, DEVICE, OWNER, TASK = IDS


class Stand:
    """A platform with one of each."""

    def keys(self) -> list[KeyInfo]:
        return [made(KeyInfo, id=KEY, principal=made(Me, role="publisher", subject=PUBLISHER, name="clinic north"))]

    def devices(self, **chosen: str) -> list[Device]:
        return [made(Device, id=DEVICE, owner_id=OWNER, name="kitchen-phone", kind="smartphone", state="active")]

    def payments(self, **chosen: Any) -> list[Payment]:
        because = "1.370001 credits × zCDP budget 0.3, of which 0.5 credits were claimed"
        return [made(Payment, device_id=DEVICE, task_id=TASK, amount_microcredits=411_000, because=because)]


@pytest.mark.parametrize(
    ("app", "command", "shown"),
    [
        (keys, "list", (KEY, PUBLISHER, "clinic north")),
        (device, "list", (DEVICE, OWNER, "kitchen-phone")),
        (payments, "list", (DEVICE, TASK, "0.411000")),
    ],
)
def test_ids_stand_whole_in_eighty_columns(
    app: Any, command: str, shown: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "width", 80)
    monkeypatch.setattr(app, "connect", lambda url, key: nullcontext(Stand()))
    printed = CliRunner().invoke(app.app, [command], catch_exceptions=False).output
    lines = [line.rstrip() for line in printed.splitlines()]
    assert max(map(len, lines)) <= 80
    assert all(any(text in line for line in lines) for text in shown), printed
