"""Relations derived from meetings and common tasks, updated with every report and not from the whole history.

A report reads and writes its pair's tallies, whatever the length of the history. When a device becomes static or
mobile, only its own meetings are counted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from coterie.records.enums import RelationKind
from services.kit.database.rows import Tx
from services.kit.runtime.concurrency import thread_if_large
from services.trust.domain import checks
from services.trust.domain.encounters import BECAUSE, Standing, Tally, kind_of_meeting, rule_of
from services.trust.domain.relations import RelationRules
from services.trust.store import encounters
from services.trust.store.encounters import Report

MET = (RelationKind.CO_LOCATION, RelationKind.SOCIAL, RelationKind.SOCIAL_PUBLIC)
STORED_KINDS = (*MET, RelationKind.CO_WORK)
MOST_DERIVED = 1_000_000


class Encountering:
    """Counts meetings and common tasks, and relates devices with enough of them."""

    def __init__(self, rules: RelationRules) -> None:
        self._rules = rules

    async def prepare(self, tx: Tx, now: float) -> None:
        """Count reports that an earlier version stored without counting."""
        if await encounters.is_empty(tx):
            await self.recount(tx, STORED_KINDS, now)

    async def note(self, tx: Tx, reports: Sequence[Report], now: float) -> None:
        """Count new reports, in order of time."""
        if not reports:
            return
        before = await encounters.tallies(tx, sorted({report.pair for report in reports}))
        await self._count(tx, before, sorted(reports, key=lambda report: report.at), STORED_KINDS, now)

    async def recount(self, tx: Tx, kinds: Sequence[RelationKind], now: float, device: int | None = None) -> int:
        """Count all reports again, or those of one device, for these kinds; return the number of relations.

        A relation that still holds keeps its `since`, which running tasks rely on.
        """
        since = await encounters.forget(tx, [kind.value for kind in kinds], device)
        reports = await encounters.history(tx, kinds, device)
        return await self._count(tx, {}, reports=reports, kinds=kinds, now=now, since=since)

    async def _count(
        self,
        tx: Tx,
        before: Mapping[tuple[int, str], Tally],
        reports: Sequence[Report],
        kinds: Sequence[RelationKind],
        now: float,
        since: Mapping[tuple[int, int, str], float] = MappingProxyType({}),
    ) -> int:
        ends = sorted({end for report in reports if not report.task for end in (report.low, report.high)})
        standings = await encounters.standings(tx, ends)
        changed, rows = await thread_if_large(len(reports), self._folded, before, reports, standings, kinds)
        checks.require_at_most("derived relations", len(rows), MOST_DERIVED)
        await encounters.keep(tx, changed)
        await encounters.relate(
            tx, [row | {"since": since.get((row["low"], row["high"], row["kind"]), now)} for row in rows]
        )
        return len(rows)

    def _folded(
        self,
        before: Mapping[tuple[int, str], Tally],
        reports: Sequence[Report],
        standings: Mapping[int, Standing],
        kinds: Sequence[RelationKind],
    ) -> tuple[dict[tuple[int, str], Tally], list[dict[str, Any]]]:
        """Return changed tallies, and rows of the pairs among them with enough meetings."""
        changed: dict[tuple[int, str], Tally] = {}
        places: dict[tuple[int, str], tuple[int, int]] = {}
        for report in reports:
            kind = _kind(report, standings)
            if kind is None or kind not in kinds:
                continue
            place = report.pair, kind.value
            old = changed.get(place) or before.get(place) or Tally()
            if report.task:
                new = old.worked(report.task)
            else:
                new = old.met(report.at, report.seconds, rule_of(kind, self._rules))
            if new is not old:
                changed[place], places[place] = new, (report.low, report.high)
        rows = [
            row
            for place, tally in changed.items()
            for row in self._related(RelationKind(place[1]), *places[place], tally.times)
        ]
        return changed, rows

    def _related(self, kind: RelationKind, low: int, high: int, times: int) -> list[dict[str, Any]]:
        """Return a row of the relation, if any; strength n/(n + needed), one half at the threshold."""
        needed = rule_of(kind, self._rules).needed
        if times < needed:
            return []
        because, strength = BECAUSE[kind].format(times=times), times / (times + needed)
        row = {"kind": kind.value, "low": low, "high": high, "strength": strength}
        return [row | {"because": because, "source": "derived"}]


def _kind(report: Report, standings: Mapping[int, Standing]) -> RelationKind | None:
    if report.task:
        return RelationKind.CO_WORK
    one, other = standings.get(report.low), standings.get(report.high)
    return None if one is None or other is None else kind_of_meeting(one, other)
