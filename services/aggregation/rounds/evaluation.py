"""Measuring model versions: what comes with updates, what a fixed panel measures, and the last version of a task.

A round's devices measure the model they start from and send the metrics with their updates. Where devices are drawn by
lot, the other devices of the panel measure the same version beside the round; when a task is about to end, the devices
of its last round measure once more, without an update, so that the last version is measured as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coterie.learning.metrics import better_of
from coterie.records.enums import EnrolmentState, Form, ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.measurements import Measurement, Voters, agreed, draw_panel, figures, split
from services.aggregation.domain.records import Enrolment, Model, Participation, Round, Task
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.domain.tasks import TaskSpecification
from services.aggregation.rounds.assignment import HEADER_ROOM_BYTES
from services.aggregation.store import measurements, models, rounds, tasks
from services.aggregation.strategies import strategy_for
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.notify.notifier import Notifier
from services.kit.rpc.enums import number
from services.kit.rpc.parameters import struct_of
from services.kit.runtime.clock import SharedClock

LEAST_SECONDS, MOST_SECONDS = 5.0, 60.0
"""Bounds of the wait for measurements of the last version, which is twice the duration of its round."""
LOOK_SECONDS = 0.25


def has_versions(spec: TaskSpecification) -> bool:
    """Whether the server makes model versions that devices can measure."""
    return strategy_for(spec).delivery.form is not Form.REPORT


def is_asked(spec: TaskSpecification) -> bool:
    """Whether the platform asks devices to measure versions: not with secure sums, which hide each device's metrics."""
    return has_versions(spec) and not SumRules.of(spec.parameters).secure


async def record(tx: Tx, task: Task, round_: Round, participations: Sequence[Participation], now: float) -> None:
    """Store the metrics that came with a round's updates with the versions they measure."""
    if not has_versions(task.specification):
        return
    reports = [p for p in participations if p.state is ParticipationState.DELIVERED and p.metrics]
    measured = [_measurement(p, now) for p in reports]
    await measurements.add_measurements(tx, measured)
    await summarise(tx, task, {item.version for item in measured} | {round_.number - 1})


def _measurement(p: Participation, now: float) -> Measurement:
    samples, metrics = split(p.metrics, float(p.samples))
    version = (p.base or p.round) - 1
    return Measurement(p.task_id, p.model_index, version, p.device_id, samples, metrics, p.delivered_at or now)


async def summarise(tx: Tx, task: Task, versions: Collection[int]) -> None:
    """Recompute the metrics of these versions, and which version is the best."""
    measured_versions = {
        version: await measurements.list_of_version(tx, task.id, version) for version in sorted(versions)
    }
    enrolled = await tasks.list_enrolments(tx, task.id) if any(measured_versions.values()) else []
    active = [e for e in enrolled if e.state is EnrolmentState.ACTIVE]
    voters = Voters({e.device_id: e.owner_id for e in enrolled}, {e.device_id for e in active})
    draws, seed = task.specification.draws, task.specification.seed
    panel = draw_panel((e.device_id for e in active if e.measures), seed) if draws else set()
    for version, measured in measured_versions.items():
        common = agreed(measured, voters, lambda name: _better(task, name), panel)
        for line in sorted({item.line for item in measured}):
            result = figures([item for item in measured if item.line == line], panel)
            await measurements.put_figures(tx, task.id, line, version, replace(result, agreed=common))
    await choose_best(tx, task)


def _better(task: Task, name: str) -> str:
    """Return which direction of a metric is better: "up" or "down"."""
    stop = task.specification.stop
    return stop.direction if stop is not None and stop.metric == name else better_of(name)


async def choose_best(tx: Tx, task: Task) -> None:
    """Store the best version so far, where the task has a stop rule."""
    stop = task.specification.stop
    best = None if stop is None else stop.best(await measurements.series(tx, task.id, stop.metric))
    if best is not None:
        await tasks.change_task(tx, task.id, best_version=best)


@dataclass(slots=True)
class Asked:
    """Work items of the devices asked to measure a version."""

    version: int
    items: dict[str, pb.WorkItem]


@dataclass(slots=True)
class Measuring:
    """Ask devices to measure versions; their measurements are rows, so a restart loses none."""

    database: Database
    notifier: Notifier
    clock: SharedClock
    asked: dict[str, Asked] = field(default_factory=dict)

    def items(self, device_id: str, task_ids: Sequence[str]) -> list[pb.WorkItem]:
        """Return the open measuring work of a device."""
        return [
            asked.items[device_id]
            for task_id, asked in self.asked.items()
            if device_id in asked.items and (not task_ids or task_id in task_ids)
        ]

    def answered(self, task_id: str, version: int, device_id: str) -> None:
        """Remove the work item of a device that has measured."""
        asked = self.asked.get(task_id)
        if asked is not None and asked.version == version:
            asked.items.pop(device_id, None)

    def forget(self, task_id: str) -> None:
        """Withdraw all measuring work of a task."""
        self.asked.pop(task_id, None)

    async def ask_panel(self, task: Task, round_: Round, taking_part: Mapping[str, object]) -> None:
        """Ask the panel's devices outside a round to measure the version it starts from."""
        if not (task.specification.draws and is_asked(task.specification)):
            return
        async with self.database.reading() as tx:
            enrolled = [e for e in await self._measuring(tx, task) if e.device_id not in taking_part]
            await self._ask(tx, task, round_.number - 1, enrolled, round_.deadline_at)

    async def at_the_end(self, task: Task, last: Round) -> float:
        """Ask the devices of the last round to measure its result; return seconds to wait, 0 when done."""
        if not is_asked(task.specification):
            return 0.0
        took = last.done_at - last.opened_at
        patience = min(max(2 * took, LEAST_SECONDS), MOST_SECONDS, task.specification.round_seconds)
        until = max(last.done_at, self.clock.began_at) + patience
        async with self.database.reading() as tx:
            delivered = {
                p.device_id
                for p in await rounds.list_participations(tx, task.id, last.number)
                if p.state is ParticipationState.DELIVERED
            }
            able = await self._measuring(tx, task)
            alive = delivered | await measurements.answered(tx, task.id, last.number - 1, [e.device_id for e in able])
            wanted = [e for e in able if e.device_id in alive]
            there = await measurements.answered(tx, task.id, last.number, [e.device_id for e in wanted])
            missing = [e for e in wanted if e.device_id not in there]
            if missing and self.clock.now() < until:
                if task.id not in self.asked or self.asked[task.id].version != last.number:
                    await self._ask(tx, task, last.number, missing, until)
                return min(LOOK_SECONDS, max(0.01, until - self.clock.now()))
        self.forget(task.id)
        async with self.database.writing() as tx:
            await summarise(tx, task, [last.number])
        return 0.0

    async def _measuring(self, tx: Tx, task: Task) -> list[Enrolment]:
        """Return the active devices that measure; where devices are drawn by lot, the panel."""
        enrolled = await tasks.list_enrolments(tx, task.id, state=EnrolmentState.ACTIVE)
        able = [e for e in enrolled if e.measures]
        if not task.specification.draws:
            return able
        panel = draw_panel((e.device_id for e in able), task.specification.seed)
        return [e for e in able if e.device_id in panel]

    async def _ask(self, tx: Tx, task: Task, version: int, devices: Sequence[Enrolment], until: float) -> None:
        current = {m.line: m for m in await models.latest_models(tx, task.id, before=version + 1)}
        lines = await rounds.last_lines(tx, task.id) if len(current) > 1 else {}
        there = await measurements.answered(tx, task.id, version, [e.device_id for e in devices])
        wanted = [e.device_id for e in devices if e.device_id not in there]
        items = {d: _item(task, current[lines.get(d, 0)], version, until) for d in wanted}
        self.asked[task.id] = Asked(version, items)
        self.notifier.notify(*(f"device:{device}" for device in items))


def _item(task: Task, model: Model, version: int, until: float) -> pb.WorkItem:
    spec = task.specification
    return pb.WorkItem(
        task_id=task.id,
        round=version + 1,
        attempt=1,
        role=number(Role.SOLO),
        model_digests=[model.digest],
        model_lines=[model.line],
        deadline_at=until,
        training_json=spec.training_json,
        parameters=struct_of(spec.parameters_json),
        privacy_unit=number(spec.privacy_unit),
        topology=spec.topology,
        privacy=spec.privacy,
        incentive=spec.incentive,
        # No update is expected, but devices reject models larger than this limit.
        max_update_bytes=model.size_bytes + HEADER_ROOM_BYTES,
        rounds=spec.rounds,
        measure=version,
    )
