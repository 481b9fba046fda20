"""Runs a rule over updates: decides once, then gives the result a chunk at a time, then tells who counted.

Memory is a few chunks and, for rules that compare updates with each other, some n × n numbers; never all updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from services.aggregation.domain.rules.axis import Rule
from services.aggregation.domain.rules.geometry import Cloud, Gram
from services.aggregation.domain.rules.mixing import Bucketing, BucketRows, Neighbours
from services.aggregation.domain.rules.rows import Matrix, Rows, Vector, canonical_order, windows
from services.aggregation.domain.rules.verdict import Coordinatewise
from services.aggregation.domain.rules.weighting import effective, why_weightless
from services.aggregation.errors import BadUpdates


@dataclass(frozen=True, slots=True)
class SetAside:
    """A device that did not count, by its place in the rows, and why."""

    device: int
    why: str


class Combination:
    """One combination under way. Read `chunks` to the end; then `used` and `set_aside` are known."""

    def __init__(
        self,
        rule: Rule,
        rows: Rows,
        *,
        weights: Sequence[float] | None = None,
        trust: Sequence[float] | None = None,
    ) -> None:
        """Takes every decision that needs whole updates. Refuses what the number of devices cannot bear."""
        if rows.count == 0:
            raise BadUpdates("updates: there are none; give one list of numbers per device")
        effect = effective(rows.count, weights, trust)
        order = [i for i in canonical_order(rows, effect) if effect[i] > 0]
        self._why = {i: why_weightless(i, trust) for i in range(rows.count) if effect[i] == 0}
        rule.refuse(len(order))
        self._rule, self._members = rule, [[device] for device in order]
        self._rows: Rows = rows.only(order)
        equal = effect[order].max() == effect[order].min()
        self._weights: Vector = np.ones(len(order)) if equal else effect[order]
        if isinstance(rule.pre, Bucketing):
            self._fill_buckets(rule.pre)
        self._mixture: Matrix | None = None
        self._counted = np.zeros(len(self._members), np.bool_)
        self._reasons: dict[int, str] = {}
        self._origin: Vector | None = None
        self._shares = self._judge()

    def _fill_buckets(self, bucketing: Bucketing) -> None:
        """Puts buckets in the place of the rows, in their own canonical order."""
        place = {members[0]: i for i, members in enumerate(self._members)}
        given = sorted(place)
        groups = [[place[given[i]] for i in group] for group in bucketing.groups(len(given))]
        buckets = BucketRows(self._rows, self._weights, groups)
        order = canonical_order(buckets, buckets.weights)
        self._members = [sorted(self._members[i][0] for i in groups[bucket]) for bucket in order]
        self._weights = buckets.weights[order]
        self._rows = buckets.only(order)

    def _judge(self) -> Vector | None:
        """Shares of the rows, for a linear rule; mixes neighbours first where asked."""
        method, given = self._rule.method, [members[0] for members in self._members]
        origin = None if isinstance(method, Coordinatewise) else method.origin(self._rows.elements)
        gram: Gram | None = None
        if isinstance(self._rule.pre, Neighbours):
            gram = Gram.of(self._rows, origin)
            plain = Cloud(self._rows, self._weights, given, origin=origin, gram=gram)
            self._mixture = self._rule.pre.mixture(gram.squared_distances(), self._weights, plain.precedence)
        if isinstance(method, Coordinatewise):
            return None
        cloud = Cloud(self._rows, self._weights, given, origin=origin, mixture=self._mixture, gram=gram)
        verdict = method.judge(cloud)
        self._counted[[i for i in range(cloud.count) if i not in verdict.why]] = True
        self._reasons = dict(verdict.why)
        self._origin = origin
        return verdict.shares if self._mixture is None else verdict.shares @ self._mixture

    def chunks(self) -> Iterator[Vector]:
        """The result, in order."""
        for values in self._by_coordinate() if self._shares is None else self._by_shares(self._shares):
            if not np.isfinite(values).all():
                raise BadUpdates("updates: their numbers are too large to combine; clip the updates")
            yield values

    def _by_shares(self, shares: Vector) -> Iterator[Vector]:
        holders = np.flatnonzero(shares)
        rows, held = self._rows.only(holders.tolist()), shares[holders]
        total = held.sum()
        for start, stop in windows(rows):
            mixed = held @ rows.read(start, stop)
            yield mixed / total if self._origin is None else mixed + (1.0 - total) * self._origin[start:stop]

    def _by_coordinate(self) -> Iterator[Vector]:
        method = self._rule.method
        assert isinstance(method, Coordinatewise)
        equal = (self._weights == self._weights[0]).all()
        for start, stop in windows(self._rows):
            values = self._rows.read(start, stop)
            if self._mixture is not None:
                values = self._mixture @ values
            result, counted = method.combine(values, None if equal else self._weights)
            self._counted |= counted
            yield result
        self._reasons = {int(i): method.why for i in np.flatnonzero(~self._counted)}

    @property
    def used(self) -> list[int]:
        """Devices that count, in order."""
        return sorted(device for row in self._rows_that_count() for device in self._members[row])

    @property
    def set_aside(self) -> list[SetAside]:
        """Devices that do not, in order, and why."""
        counting = set(self._rows_that_count())
        reasons = dict(self._why)
        for row, members in enumerate(self._members):
            if row not in counting:
                reasons |= dict.fromkeys(members, self._reason(row))
        return [SetAside(device, reasons[device]) for device in sorted(reasons)]

    def _rows_that_count(self) -> list[int]:
        if self._mixture is None:
            return [int(i) for i in np.flatnonzero(self._counted)]
        return [int(i) for i in np.flatnonzero((self._mixture[self._counted] > 0).any(axis=0))]

    def _reason(self, row: int) -> str:
        if self._mixture is not None:
            return "among the nearest of no update that counts"
        prefix = "its bucket: " if len(self._members[row]) > 1 else ""
        return prefix + self._reasons[row]


def combine(
    rule: Rule, rows: Rows, *, weights: Sequence[float] | None = None, trust: Sequence[float] | None = None
) -> tuple[Vector, Combination]:
    """The whole result at once, for results that fit into memory."""
    run = Combination(rule, rows, weights=weights, trust=trust)
    pieces = list(run.chunks())
    return (np.concatenate(pieces) if pieces else np.zeros(0)), run
