"""The duty index."""

from __future__ import annotations

from typing import Any, cast

from services.aggregation.secure_sums.duty_index import DutyIndex
from services.kit.notify.notifier import Notifier


def test_a_clerk_that_is_called_while_it_is_told_to_forget_stays() -> None:
    """A call between reading a device's sessions and dismissing it keeps the device."""
    desk = DutyIndex(cast(Any, None), Notifier())
    desk.call(["dev_a"])
    seen = desk.last_call("dev_a")
    desk.call(["dev_a"])
    desk.dismiss("dev_a", seen)
    assert desk.devices == {"dev_a"}
    desk.dismiss("dev_a", desk.last_call("dev_a"))
    assert desk.devices == set()


def test_a_call_after_a_dismissal_is_another_than_any_before() -> None:
    desk = DutyIndex(cast(Any, None), Notifier())
    desk.call(["dev_a"])
    first = desk.last_call("dev_a")
    desk.dismiss("dev_a", first)
    desk.call(["dev_a"])
    desk.dismiss("dev_a", first)
    assert desk.devices == {"dev_a"}
