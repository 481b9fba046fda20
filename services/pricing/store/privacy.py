"""Privacy charges in the database: every one of them, and their running totals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import sqlalchemy as sa

from services.kit.rows import Row, Tx, insert_rows
from services.pricing.domain.ledger_privacy import TaskTotals, Total, total_of
from services.pricing.domain.ledger_settlement import Work
from services.pricing.tables import privacy_charges, privacy_totals

_ADDED = (
    "(device_id, task_id, unit, mechanism, parameter, sampling_rate) "
    "DO UPDATE SET amount = privacy_totals.amount + excluded.amount"
)


async def add_charges(tx: Tx, task_id: str, round_number: int, work: Sequence[Work]) -> None:
    """Writes the charges of a round's work and adds them to the totals."""
    history: list[Row] = []
    sums: dict[Row, float] = defaultdict(float)
    for w in work:
        for position, charge in enumerate(w.charges):
            history.append((w.device_id, task_id, round_number, position, *charge.key))
            total = total_of(charge)
            key = (w.device_id, task_id, total.unit, total.mechanism, total.parameter, total.sampling_rate)
            sums[key] += total.amount
    await insert_rows(tx, list(privacy_charges.c), history)
    await insert_rows(tx, list(privacy_totals.c), [(*key, amount) for key, amount in sums.items()], _ADDED)


async def totals_of(tx: Tx, device_id: str) -> list[TaskTotals]:
    """What a device spent, by task, in order of task id."""
    counting = sa.select(privacy_charges.c.task_id, sa.func.count(sa.distinct(privacy_charges.c.round)))
    counting = counting.where(privacy_charges.c.device_id == device_id).group_by(privacy_charges.c.task_id)
    rounds = {task: int(count) for task, count in await tx.execute(counting)}
    query = sa.select(privacy_totals).where(privacy_totals.c.device_id == device_id)
    found: dict[str, list[Total]] = defaultdict(list)
    for row in await tx.execute(query):
        total = Total(row.mechanism, row.unit, row.parameter, row.sampling_rate, row.amount)
        found[row.task_id].append(total)
    return [TaskTotals(task, rounds.get(task, 0), tuple(totals)) for task, totals in sorted(found.items())]
