"""The desk: whoever may have duties is known, also when it is called while it is told to forget."""

from __future__ import annotations

from typing import Any, cast

from services.aggregation.rounds.desk import Desk
from services.kit.notify.notifier import Notifier


def test_a_clerk_that_is_called_while_it_is_told_to_forget_stays() -> None:
    """Its seats are read, then it is called to another sitting, then it is dismissed for the seats that were read."""
    desk = Desk(cast(Any, None), Notifier())
    desk.call(["dev_a"])
    seen = desk.last_call("dev_a")
    desk.call(["dev_a"])
    desk.dismiss("dev_a", seen)
    assert desk.devices == {"dev_a"}
    desk.dismiss("dev_a", desk.last_call("dev_a"))
    assert desk.devices == set()


def test_a_call_after_a_dismissal_is_another_than_any_before() -> None:
    desk = Desk(cast(Any, None), Notifier())
    desk.call(["dev_a"])
    first = desk.last_call("dev_a")
    desk.dismiss("dev_a", first)
    desk.call(["dev_a"])
    desk.dismiss("dev_a", first)
    assert desk.devices == {"dev_a"}
