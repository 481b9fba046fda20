"""Objections to a head's verdict, which an agent makes itself: its letter and its report came in time.

The platform sends a member its head's verdict with the next round's work, and after a task's last round in its
participation. It sends a verdict only where the head alone contradicts a report that came in time, so each is disputed.
"""

from __future__ import annotations

import logging

from coterie.client import Platform
from coterie.errors import CoterieError
from coterie.records import WorkItem

_WHY = "its letter and its report came in time, made as the task says"
_log = logging.getLogger("coterie.agent.objections")


def after_round(platform: Platform, work: WorkItem) -> None:
    """Object to the verdict of the last round's head, if there is one."""
    if work.verdict:
        _object(platform, work.task_id, work.round - 1, work.verdict)


def after_task(platform: Platform, task_id: str, number: int, device_id: str) -> None:
    """Object to the verdict of the head in an ended task's last round, if there is one."""
    try:
        parts = [part for part in platform.participations(task_id, device_id, after=number - 1) if part.round == number]
    except CoterieError as error:
        _log.info("the verdict of round %d's head cannot be read: %s", number, error)
        return
    for part in parts:
        if part.judged_by and not part.objection:
            _object(platform, task_id, number, part.note)


def _object(platform: Platform, task_id: str, number: int, verdict: str) -> None:
    _log.warning("round %d of %s: this device objects to a verdict %s", number, task_id, verdict)
    try:
        platform.object(task_id, number, _WHY)
    except CoterieError as error:
        _log.info("the objection came to nothing: %s", error)
