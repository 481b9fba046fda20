"""What devices and publishers measured of model versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import TaskState
from services.aggregation import tables as t
from services.aggregation.domain.measurements import Figures, Measurement
from services.aggregation.domain.records import Model
from services.kit.database.rows import Tx, columns, fetch_all, fetch_one, upsert
from services.kit.rpc.paging import Page

_MEASUREMENTS: sa.Select[Any] = sa.select(*columns(Measurement, t.measurements))
# Precompiled: building a hot statement costs more than running it.
_OF_VERSION = _MEASUREMENTS.where(
    t.measurements.c.task_id == sa.bindparam("p_task"),
    t.measurements.c.line == sa.bindparam("p_line"),
    t.measurements.c.version == sa.bindparam("p_version"),
).order_by(t.measurements.c.device_id)
_MODELS: sa.Select[Any] = sa.select(*columns(Model, t.models))
_NEWEST: sa.Select[Any] = (
    sa.select(t.models.c.task_id, t.models.c.evaluated, t.models.c.agreed)
    .where(t.models.c.line == 0, t.models.c.version > 0)
    .order_by(t.models.c.task_id.desc(), t.models.c.version.desc())
)
_FITTED = ("loss", "accuracy")
"""Figures that a quality model is fitted to."""


async def add_measurements(tx: Tx, measured: Sequence[Measurement]) -> None:
    """Stores measurements; a device's first of a version stays."""
    keys = ["task_id", "line", "version", "device_id"]
    await upsert(tx, t.measurements, [asdict(item) for item in measured], keys, only=[])


async def list_measurements(
    tx: Tx, task_id: str, line: int, version: int, page: Page | None = None, *, only: str = ""
) -> list[Measurement]:
    """What was measured of a version, by device id: a page of it or all, or `only` one device's."""
    m = t.measurements.c
    if page is None and not only:
        values = {"p_task": task_id, "p_line": line, "p_version": version}
        return await fetch_all(tx, _OF_VERSION, Measurement, values)
    query = _MEASUREMENTS.where(m.task_id == task_id, m.line == line, m.version == version)
    if only:
        query = query.where(m.device_id == only)
    if page:
        query = query.where(m.device_id > page.cursor).limit(page.limit)
    return await fetch_all(tx, query.order_by(m.device_id), Measurement)


async def list_of_version(tx: Tx, task_id: str, version: int) -> list[Measurement]:
    """What was measured of a version of every model line."""
    m = t.measurements.c
    query = _MEASUREMENTS.where(m.task_id == task_id, m.version == version)
    return await fetch_all(tx, query.order_by(m.line, m.device_id), Measurement)


async def answered(tx: Tx, task_id: str, version: int, devices: Collection[str]) -> set[str]:
    """Which of these devices measured a version, of whichever line."""
    m = t.measurements.c
    query = sa.select(m.device_id).where(m.task_id == task_id, m.version == version)
    return set((await tx.execute(query)).scalars()) & set(devices)


async def put_figures(tx: Tx, task_id: str, line: int, version: int, summary: Figures) -> None:
    """Store the summary of a version's measurements."""
    await tx.execute(_place(task_id, line, version).values(**asdict(summary)))


async def put_evaluated(tx: Tx, task_id: str, line: int, version: int, metrics: dict[str, float]) -> None:
    """Store the evaluator's metrics of a version, replacing its former ones."""
    await tx.execute(_place(task_id, line, version).values(evaluated=metrics))


async def find_version(tx: Tx, task_id: str, line: int, version: int) -> Model | None:
    """One version of a model line."""
    m = t.models.c
    return await fetch_one(tx, _MODELS.where(m.task_id == task_id, m.line == line, m.version == version), Model)


async def series(tx: Tx, task_id: str, metric: str) -> dict[int, float]:
    """A figure of each version that has it: the evaluator's where it reported any, else what owners agree on.

    Of several model lines it is the mean; what owners agree on is of all lines already.
    """
    m = t.models.c
    query = sa.select(m.version, m.evaluated, m.agreed).where(m.task_id == task_id, m.line >= 0)
    rows = (await tx.execute(query.order_by(m.version))).all()
    own = any(metric in row.evaluated for row in rows)
    of_version: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        metrics = row.evaluated if own else row.agreed
        if metric in metrics:
            of_version[row.version].append(metrics[metric])
    return {version: fmean(values) for version, values in of_version.items()}


async def evaluated_like(tx: Tx, publisher: str, digest: str, limit: int) -> dict[str, dict[str, float]]:
    """Loss and accuracy that the publisher's evaluator reported, of its newest finished tasks of the same first model.

    Devices' own figures do not count here: plans, weights and pay follow from these.
    """
    first, m = t.models.alias("first"), t.models.c
    same = (first.c.task_id == m.task_id) & (first.c.version == 0) & (first.c.digest == digest)
    query = (
        _NEWEST.join(t.tasks, t.tasks.c.id == m.task_id)
        .join(first, same)
        .where(t.tasks.c.publisher == publisher, t.tasks.c.state == TaskState.FINISHED)
    )
    result: dict[str, dict[str, float]] = {}
    for row in await tx.execute(query):
        if row.task_id not in result and (fitted := _whole(row.evaluated)):
            result[row.task_id] = fitted
        if len(result) == limit:
            break
    return result


async def figures_of(tx: Tx, task_ids: Sequence[str]) -> dict[str, dict[str, float]]:
    """Loss and accuracy of each task's newest version that has both: the evaluator's, else what owners agree on."""
    result: dict[str, dict[str, float]] = {}
    for row in await tx.execute(_NEWEST.where(t.models.c.task_id.in_(task_ids))):
        if row.task_id not in result and (fitted := _whole(row.evaluated) or _whole(row.agreed)):
            result[row.task_id] = fitted
    return result


def _whole(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return loss and accuracy where both are present."""
    return {name: float(metrics[name]) for name in _FITTED} if all(name in metrics for name in _FITTED) else {}


def _place(task_id: str, line: int, version: int) -> sa.Update:
    m = t.models
    return m.update().where(m.c.task_id == task_id, m.c.line == line, m.c.version == version)
