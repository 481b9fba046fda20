"""Measure model versions: on a device without an update to send, and by a publisher with separate data.

measure(platform, task_id, figures)     # figures(tensors) -> {"accuracy": 0.93, ...}, on examples that stay here
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from coterie.client import Platform
from coterie.errors import Refused, RoundOver
from coterie.learning.evaluation import Tensors
from coterie.learning.tensor_files import load_file
from coterie.records import Model, WorkItem
from coterie.strategies.consent import NO_NOISE
from coterie.strategies.context import RoundContext

WAIT_SECONDS = 20.0
_log = logging.getLogger("coterie.agent.agent")


# --- a device ---------------------------------------------------------------------------------------------------------


def measured(context: RoundContext) -> dict[str, float]:
    """Figures of the model of a work item, as far as they may be sent."""
    context.learner.load(context.model())
    return context.figures()


def tell(platform: Platform, work: WorkItem, metrics: Mapping[str, float]) -> None:
    """Sends what was measured; a version that is measured no more is none of a device's worries."""
    line, public = work.model_lines[0], work.privacy != NO_NOISE
    try:
        platform.report_measurement(work.task_id, work.measure or 0, metrics, line=line, public=public)
    except (RoundOver, Refused) as error:
        _log.info("figures of version %s were not taken: %s", work.measure, error)


# --- a publisher's evaluator ------------------------------------------------------------------------------------------


def measure(
    platform: Platform,
    task_id: str,
    figures: Callable[[Tensors], Mapping[str, float]],
    *,
    on_version: Callable[[Model, Mapping[str, float]], None] = lambda model, metrics: None,
) -> int:
    """Measures every version of a task's models as it is made, until the task has ended; how many were measured.

    Versions that were measured before are left alone, so an evaluator may be stopped and started again.
    """
    known: set[tuple[int, int]] = set()
    after = count = 0
    while True:
        ended = platform.task(task_id).state.has_ended
        for model in platform.models(task_id):
            place = (model.line, model.version)
            if place in known:
                continue
            known.add(place)
            if not model.evaluated:
                metrics = dict(figures(load_file(platform.download_model(model.digest))))
                platform.report_measurement(task_id, model.version, metrics, line=model.line)
                count += 1
                on_version(model, metrics)
        if ended:
            return count
        events = platform.events(task_id, after=after, wait_seconds=WAIT_SECONDS)
        after = events[-1].number if events else after
