"""Tasks as measured runs, which the quality model of clusters is fitted to. [SCFL] eqs (13), (14)

What the platform has of a task: the mean noise and γ of its devices, and loss and accuracy of its newest measured
version, what the publisher's own evaluator told of it before what devices say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.topology.v1 import topology_pb2
from coterie_api.words.v1 import words_pb2 as words
from services.gateway.access.ownership import demand_own_task
from services.kit.errors import InvalidInput
from services.kit.stubs import Upstreams

MOST_TASKS = 100
PAGE = 500
FIGURES = ("loss", "accuracy")


class NothingMeasured(InvalidInput):
    """Tasks that cannot be runs: too many, none, or without figures."""


async def with_runs(platform: Upstreams, text: str) -> str:
    """The question with the runs of the tasks it names in the place of `tasks`; others stay as they are."""
    try:
        question = json.loads(text)
    except (ValueError, RecursionError):
        return text  # the solver says what is wrong with it
    if not isinstance(question, dict) or "tasks" not in question:
        return text
    named, given = question.pop("tasks"), question.pop("measured", [])
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named) or not named:
        raise NothingMeasured('tasks must be a list of task ids, such as {"tasks": ["tsk_…", …]}')
    if not isinstance(given, list):
        raise NothingMeasured("measured must be a list of runs, or be left out")
    if len(named) > MOST_TASKS:
        raise NothingMeasured(f"{len(named)} tasks are more than the {MOST_TASKS} that are fitted to; name fewer")
    runs = [await measured_run(platform, task_id) for task_id in dict.fromkeys(named)]
    return json.dumps({**question, "measured": [*given, *runs]})


async def measured_run(platform: Upstreams, task_id: str) -> dict[str, float]:
    """One task as a run."""
    await demand_own_task(platform, task_id)
    task = await platform.tasks.GetTask(aggregation_pb2.GetTaskRequest(task_id=task_id))
    figures = await _newest_figures(platform, task)
    plan = await platform.topology.GetPlan(topology_pb2.GetPlanRequest(task_id=task_id))
    noise = [seat.noise_multiplier for seat in plan.seats if seat.role != words.ROLE_IDLE]
    told = task.specification.parameters.topology
    most = told.non_iid if told.HasField("non_iid") else 1.0
    degrees = [min(each.non_iid or most, most) for each in await _enrolments(platform, task_id)]
    return {
        "noise": fmean(noise) if noise else 0.0,
        "non_iid": fmean(degrees) if degrees else most,
        "loss": figures["loss"],
        "accuracy": 100.0 * figures["accuracy"],
    }


async def _newest_figures(platform: Upstreams, task: aggregation_pb2.Task) -> dict[str, float]:
    found: dict[int, dict[str, float]] = {}
    cursor = ""
    while True:
        request = aggregation_pb2.ListModelsRequest(task_id=task.id, limit=PAGE, cursor=cursor)
        reply = await platform.tasks.ListModels(request)
        found |= {model.version: figures for model in reply.models if (figures := _figures(model))}
        cursor = reply.next_cursor
        if not cursor:
            break
    if not found:
        raise NothingMeasured(
            f"{task.specification.name}: no version has both a loss and an accuracy; devices tell them of public test "
            "samples (public_test_data=True), or run coterie task evaluate"
        )
    return found[max(found)]


def _figures(model: aggregation_pb2.Model) -> dict[str, float]:
    told: Sequence[Mapping[str, Any]] = (model.evaluated, model.metrics)
    for figures in told:
        if all(name in figures and math.isfinite(figures[name]) for name in FIGURES):
            return {name: float(figures[name]) for name in FIGURES}
    return {}


async def _enrolments(platform: Upstreams, task_id: str) -> list[aggregation_pb2.Enrolment]:
    found: list[aggregation_pb2.Enrolment] = []
    cursor = ""
    while True:
        request = aggregation_pb2.ListEnrolmentsRequest(task_id=task_id, limit=PAGE, cursor=cursor)
        reply = await platform.tasks.ListEnrolments(request)
        found += reply.enrolments
        cursor = reply.next_cursor
        if not cursor:
            return found
