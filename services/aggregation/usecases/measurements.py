"""Measurements: what devices and the publisher's evaluator measured of model versions."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.records.enums import EnrolmentState
from services.aggregation.domain.measurements import SAMPLES, Measurement, split
from services.aggregation.domain.records import MeasuredTask, Task
from services.aggregation.errors import BadTask, MetricsNotTaken, NotEnrolled, RoundOver, UnknownVersion
from services.aggregation.rounds.conductor import Conductor
from services.aggregation.rounds.evaluation import choose_best, is_asked
from services.aggregation.rounds.measured_runs import runs_of
from services.aggregation.store import measurements, models, tasks
from services.aggregation.strategies import strategy_for
from services.aggregation.usecases import visibility
from services.aggregation.usecases.work import check_metrics
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.notify.notifier import Notifier
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import current_principal, require_role
from services.kit.runtime.clock import Clock

MOST_RUNS = 100
"""Largest number of tasks in one request for measured runs."""


class MeasurementUseCases:
    """Record and list measurements."""

    def __init__(self, database: Database, conductor: Conductor, notifier: Notifier, clock: Clock) -> None:
        self._database, self._conductor, self._notifier, self._clock = database, conductor, notifier, clock

    async def tell(
        self, task_id: str, line: int, version: int, metrics: dict[str, float], *, is_public: bool = False
    ) -> None:
        """Record the caller's metrics of a version: a device only of the newest, a publisher of any."""
        check_metrics(metrics)
        caller = current_principal()
        async with self._database.writing() as tx:
            task = await visibility.see_inside(tx, task_id)
            if await measurements.find_version(tx, task_id, line, version) is None:
                raise UnknownVersion(f"task {task_id} has no version {version} of model {line}")
            if caller.role == "device":
                strategy_for(task.specification).delivery.require_public_metrics(metrics, is_public=is_public)
                await self._take(tx, task, line, version, metrics)
            else:
                evaluated = {name: value for name, value in metrics.items() if name != SAMPLES}
                await measurements.put_evaluated(tx, task_id, line, version, evaluated)
                await choose_best(tx, task)
        if caller.role == "device":
            self._conductor.measuring.answered(task_id, version, caller.subject)
        self._notifier.notify(f"task:{task_id}")

    async def _take(self, tx: Tx, task: Task, line: int, version: int, metrics: dict[str, float]) -> None:
        device_id = current_principal().subject
        enrolment = await tasks.find_enrolment(tx, task.id, device_id)
        if enrolment is None or enrolment.state is not EnrolmentState.ACTIVE:
            raise NotEnrolled(f"device {device_id} is not enrolled in {task.id}")
        if not is_asked(task.specification):
            raise MetricsNotTaken("this task takes no figures of single devices; leave them out")
        newest = {model.line: model.version for model in await models.latest_models(tx, task.id)}
        if task.ended or newest.get(line) != version:
            raise RoundOver(f"version {version} is measured no more; ask for work again")
        samples, means = split(metrics, float(enrolment.samples))
        result = Measurement(task.id, line, version, device_id, samples, means, self._clock.now())
        await measurements.add_measurements(tx, [result])

    async def list_runs(self, task_ids: Sequence[str]) -> list[MeasuredTask]:
        """The caller's tasks as measured runs, without those of which too little was measured."""
        require_role("publisher", "admin")
        if len(task_ids) > MOST_RUNS:
            raise BadTask(f"{len(task_ids)} tasks were named, at most {MOST_RUNS} are allowed at once; name fewer")
        async with self._database.reading() as tx:
            for task_id in task_ids:
                await visibility.see_inside(tx, task_id)
            return await runs_of(tx, task_ids)

    async def list_measurements(self, task_id: str, line: int, version: int, page: Page) -> list[Measurement]:
        """What each device measured of a version; a device sees its own."""
        caller = current_principal()
        async with self._database.reading() as tx:
            await visibility.see_inside(tx, task_id)
            if await measurements.find_version(tx, task_id, line, version) is None:
                raise UnknownVersion(f"task {task_id} has no version {version} of model {line}")
            only = caller.subject if caller.role == "device" else ""
            return await measurements.list_measurements(tx, task_id, line, version, page, only=only)
