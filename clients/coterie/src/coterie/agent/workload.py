"""Limits on the work that a device accepts for one round, regardless of the task.

The owner lowers or raises each limit in the private settings, `{"limits": {"epochs": 5}}`, or with
`coterie device limits`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from coterie.errors import BadHome, CoterieError, Declined
from coterie.records import WorkItem

_SOUND_ID = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}$")


class UnsoundId(CoterieError):
    """The platform named something in a way that no file may be named."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The most a device does in one round.

    Attributes:
        epochs: passes over its samples.
        batch_size: samples in one step.
        steps: noised full-batch steps of a privacy sale.
        models: models tried before it chooses one.
        model_megabytes: largest update it would have to make.
        peers: devices it exchanges letters with.
    """

    epochs: int = 100
    batch_size: int = 100_000
    steps: int = 1_000
    models: int = 64
    model_megabytes: int = 2_048
    peers: int = 1_000

    @classmethod
    def of(cls, private: Mapping[str, Any]) -> Workload:
        """Read the owner's limits from the private settings; the others have their defaults."""
        given = private.get("limits") or {}
        known = {field.name for field in fields(cls)}
        wrong = [name for name, value in given.items() if name not in known or not _is_whole(value) or value < 1]
        if wrong:
            raise BadHome(f"limits in private.json: {wrong[0]} must be one of {', '.join(sorted(known))}, from 1 on")
        return cls(**given)

    def check(self, work: WorkItem) -> None:
        """Declines work beyond the limits, or that no honest task asks for."""
        for name, least in (("epochs", 0), ("batch_size", 1), ("steps", 1)):
            if name in work.training:
                self._demand(name, work.training[name], least)
        self._demand("batch_size", work.batch_size, 0)
        self._demand("models", len(work.model_digests), 0)
        self._demand("peers", len(work.peers), 0)
        self._demand("model_megabytes", work.max_update_bytes // 1_000_000, 0)

    def _demand(self, name: str, value: object, least: int) -> None:
        most = getattr(self, name)
        if not isinstance(value, int) or not _is_whole(value) or value < least:
            raise Declined(f"the task asks for {name} {str(value)[:40]}; a whole number from {least} on makes sense")
        if value > most:
            raise Declined(f"the task asks for {name} {value}, this device does {most} at most")


def sound_id(text: str) -> str:
    """An id from the platform that is also a name of a file and leads nowhere else."""
    if not _SOUND_ID.match(text) or ".." in text:
        raise UnsoundId(f"the platform sent the id {text[:80]!r}, which no task has; do not use this platform")
    return text


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
