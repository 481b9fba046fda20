"""Objecting to a head's verdict, which an agent does by itself: its letter and its report came in time.

The platform tells a member what its head said of it with the next round's work, and after a task's last round in its
part of that round. Only a word that stands alone against a report that came in time is told: whoever is told objects.
"""

from __future__ import annotations

import logging

from coterie.client import Platform
from coterie.errors import CoterieError
from coterie.records import WorkItem

_WHY = "its letter and its report came in time, made as the task says"
_log = logging.getLogger("coterie.agent.objections")


def after_round(platform: Platform, work: WorkItem) -> None:
    """Objects to what the last round's head said, if it said something."""
    if work.verdict:
        _object(platform, work.task_id, work.round - 1, work.verdict)


def after_task(platform: Platform, task_id: str, number: int, device_id: str) -> None:
    """Objects to what the head of an ended task's last round said, if it said something."""
    try:
        told = [part for part in platform.participations(task_id, device_id, after=number - 1) if part.round == number]
    except CoterieError as error:
        _log.info("what the head of round %d said is not known: %s", number, error)
        return
    for part in told:
        if part.judged_by and not part.objection:
            _object(platform, task_id, number, part.note)


def _object(platform: Platform, task_id: str, number: int, verdict: str) -> None:
    _log.warning("round %d of %s: this device objects to a verdict %s", number, task_id, verdict)
    try:
        platform.object(task_id, number, _WHY)
    except CoterieError as error:
        _log.info("the objection came to nothing: %s", error)
