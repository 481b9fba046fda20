"""Measured runs of tasks, to which topology fits its quality model of clusters. [SCFL] eqs (13), (14)

A run is the mean counted γ of a task's devices, and loss and accuracy of the newest version that has both: reported by
the publisher's evaluator or else, where the publisher asks for it, agreed on by most owners. The noise is the plan's,
which topology knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from coterie.parameters.topology import ClusterParameters
from services.aggregation.domain.records import MeasuredTask, Task
from services.aggregation.store import measurements, tasks
from services.kit.database.rows import Tx

MOST_EARLIER = 30
"""Newest earlier tasks that a plan's quality model is fitted to."""


async def earlier_runs(tx: Tx, task: Task) -> list[MeasuredTask]:
    """Return finished tasks of the same publisher and first model with its evaluator's metrics, which decide pay."""
    digest = task.specification.model_digests[0]
    return await _runs(tx, await measurements.evaluated_like(tx, task.publisher, digest, MOST_EARLIER))


async def runs_of(tx: Tx, task_ids: Sequence[str]) -> list[MeasuredTask]:
    """Return the runs of these tasks in this order, without those that lack loss or accuracy."""
    result = await measurements.figures_of(tx, task_ids)
    return await _runs(tx, {task_id: result[task_id] for task_id in task_ids if task_id in result})


async def _runs(tx: Tx, figures: Mapping[str, Mapping[str, float]]) -> list[MeasuredTask]:
    runs = []
    for task_id, metrics in figures.items():
        task = await tasks.find_task(tx, task_id)
        assert task is not None  # its models are stored
        most = ClusterParameters.of(task.specification.parameters).non_iid
        degrees = [min(e.non_iid or most, most) for e in await tasks.list_enrolments(tx, task_id)]
        runs.append(
            MeasuredTask(task_id, fmean(degrees) if degrees else most, metrics["loss"], 100.0 * metrics["accuracy"])
        )
    return runs
