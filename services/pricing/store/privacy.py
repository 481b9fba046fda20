"""Privacy charges in the database, and their running totals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import isfinite
from typing import Any

import sqlalchemy as sa

from coterie.privacy.accounting import Charge
from coterie.privacy.claims import PURPOSE, claim_of
from services.kit.database.rows import Row, Tx, insert_rows
from services.kit.observability.metrics import CHARGES_TOTAL, RHO_TOTAL
from services.pricing.domain.ledger_privacy import TaskTotals, total_of
from services.pricing.domain.ledger_settlement import Work
from services.pricing.tables import privacy_charges, privacy_totals

_KIND = ("device_id", "task_id", "unit", "adjacency", "mechanism", "parameter", "sampling_rate")
_ADDED = f"({', '.join(_KIND)}) DO UPDATE SET amount = privacy_totals.amount + excluded.amount"


async def add_charges(tx: Tx, task_id: str, round_number: int, work: Sequence[Work]) -> None:
    """Store the charges of a round's work and add them to the totals."""
    history: list[Row] = []
    sums: dict[Row, float] = defaultdict(float)
    for w in work:
        for position, charge in enumerate(w.charges):
            place = {"device_id": w.device_id, "task_id": task_id, "round": round_number, "position": position}
            values = {**place, **claim_of(charge).to_dict()}
            history.append(tuple(values[column.name] for column in privacy_charges.c))
            kind, amount = _kind_and_amount(total_of(charge))
            sums[w.device_id, task_id, *kind] += amount
    await insert_rows(tx, list(privacy_charges.c), history)
    tx.after_commit(lambda: _count([charge for w in work for charge in w.charges]))
    columns = [privacy_totals.c[name] for name in (*_KIND, "amount")]
    await insert_rows(tx, columns, [(*key, amount) for key, amount in sums.items()], _ADDED)


def _count(charges: Sequence[Charge]) -> None:
    for charge in charges:
        CHARGES_TOTAL.labels(charge.mechanism, charge.unit).inc()
        if isfinite(charge.rho):
            RHO_TOTAL.labels(charge.unit).inc(charge.rho)


async def totals_of(tx: Tx, device_id: str) -> list[TaskTotals]:
    """Return a device's totals by task, in order of task id."""
    counting = sa.select(privacy_charges.c.task_id, sa.func.count(sa.distinct(privacy_charges.c.round)))
    counting = counting.where(privacy_charges.c.device_id == device_id).group_by(privacy_charges.c.task_id)
    rounds = {task: int(count) for task, count in await tx.execute(counting)}
    query = sa.select(privacy_totals).where(privacy_totals.c.device_id == device_id)
    result: dict[str, list[Charge]] = defaultdict(list)
    for row in await tx.execute(query):
        result[row.task_id].append(_total(row))
    return [TaskTotals(task, rounds.get(task, 0), tuple(totals)) for task, totals in sorted(result.items())]


def _kind_and_amount(total: Charge) -> tuple[Row, float]:
    kind = (total.unit, total.adjacency, total.mechanism)
    match total.mechanism:
        case "laplace":
            return (*kind, total.epsilon, 1.0), float(total.steps)
        case _:
            return (*kind, 0.0, 1.0), total.rho


def _total(row: Any) -> Charge:
    named = (row.task_id, 0, PURPOSE, row.mechanism, row.unit, row.adjacency)
    match row.mechanism:
        case "laplace":
            return Charge(*named, epsilon=row.parameter, steps=int(row.amount))
        case _:
            return Charge(*named, rho=row.amount)
