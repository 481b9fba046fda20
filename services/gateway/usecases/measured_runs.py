"""Convert tasks to measured runs, to which the quality model of clusters is fitted. [SCFL] eqs (13), (14)

Aggregation has the metrics of a task, topology the noise of its plan.
"""

from __future__ import annotations

import json
from statistics import fmean

from coterie_api.aggregation.v1 import aggregation_pb2
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2
from services.gateway.errors import NotYours
from services.kit.errors import InvalidInput, PermissionDenied
from services.kit.rpc.service_clients import ServiceClients

MAX_TASKS = 100


class NothingMeasured(InvalidInput):
    """No runs can be made of the tasks: none, too many, or tasks without metrics."""


async def with_runs(platform: ServiceClients, text: str) -> str:
    """Replace `tasks` in a question by their runs; return other questions unchanged."""
    try:
        question = json.loads(text)
    except (ValueError, RecursionError):
        return text  # the solver reports the error
    if not isinstance(question, dict) or "tasks" not in question:
        return text
    named, given = question.pop("tasks"), question.pop("measured", [])
    if not isinstance(named, list) or not all(isinstance(item, str) for item in named) or not named:
        raise NothingMeasured('tasks must be a list of task ids, such as {"tasks": ["tsk_…", …]}')
    if not isinstance(given, list):
        raise NothingMeasured("measured must be a list of runs; correct it or leave it out")
    if len(named) > MAX_TASKS:
        raise NothingMeasured(f"{len(named)} tasks exceed the limit of {MAX_TASKS}; name fewer")
    ids = list(dict.fromkeys(named))
    try:
        reply = await platform.tasks.ListMeasuredTasks(aggregation_pb2.ListMeasuredTasksRequest(task_ids=ids))
    except PermissionDenied as error:
        raise NotYours(error.message) from error
    missing = set(ids) - {task.task_id for task in reply.tasks}
    if missing:
        raise NothingMeasured(
            f"{', '.join(sorted(missing))}: no version has both a loss and an accuracy that count; let at least "
            "three devices of three owners report them on public test samples (public_test_data=True), or run coterie "
            "task evaluate"
        )
    runs = [await _run(platform, task) for task in reply.tasks]
    return json.dumps({**question, "measured": [*given, *runs]})


async def _run(platform: ServiceClients, task: aggregation_pb2.MeasuredTask) -> dict[str, float]:
    """Make a run of a task, with the mean noise of the devices that work in its plan."""
    plan = await platform.topology.GetPlan(topology_pb2.GetPlanRequest(task_id=task.task_id))
    noise = [assignment.noise_multiplier for assignment in plan.assignments if assignment.role != words.ROLE_IDLE]
    return {
        "noise": fmean(noise) if noise else 0.0,
        "non_iid": task.non_iid,
        "loss": task.loss,
        "accuracy": task.accuracy,
    }
