"""The duty index."""

from __future__ import annotations

from typing import Any, cast

from services.aggregation.secure_sums.duty_index import DutyIndex
from services.kit.notify.notifier import Notifier


def test_a_device_woken_while_its_sessions_are_read_stays_in_the_index() -> None:
    index = DutyIndex(cast(Any, None), Notifier())
    index.wake(["dev_a"])
    before = index.last_wake("dev_a")
    index.wake(["dev_a"])
    index.remove("dev_a", before)
    assert index.devices == {"dev_a"}
    index.remove("dev_a", index.last_wake("dev_a"))
    assert index.devices == set()


def test_wake_up_numbers_never_repeat_after_a_removal() -> None:
    index = DutyIndex(cast(Any, None), Notifier())
    index.wake(["dev_a"])
    first = index.last_wake("dev_a")
    index.remove("dev_a", first)
    index.wake(["dev_a"])
    index.remove("dev_a", first)
    assert index.devices == {"dev_a"}
