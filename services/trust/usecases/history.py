"""The past of devices: interactions, the course of trust, and its losses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from services.kit.database.engine import Database
from services.kit.rpc.paging import Page, page_size
from services.kit.rpc.principal import NotAllowed, require_device, require_role
from services.kit.runtime.clock import Clock
from services.trust.domain import checks
from services.trust.domain.evidence import Evidence, Pieces, Prior, direct_trust_at, fold, tabled
from services.trust.domain.parameters import DAY_SECONDS, EvidenceRule, TrustParameters
from services.trust.domain.records import RecordedInteraction
from services.trust.errors import InvalidField, SelfTrust
from services.trust.store import records, social
from services.trust.usecases.directory import Directory, Entry
from services.trust.usecases.trust_cache import TrustCache, shifted
from services.trust.usecases.visibility import Visibility

MOST_POINTS = 1_000
DEFAULT_LOSS_SPAN_SECONDS = 30 * DAY_SECONDS
_MOST_CANDIDATES = 2_000
_MOST_CULPRITS = 10


@dataclass(frozen=True, slots=True)
class Point:
    """Direct trust of a pair at one time, and its number of interactions."""

    at: float
    direct: float
    count: int


@dataclass(frozen=True, slots=True)
class Loss:
    """A pair that lost trust: its highest value in the span, its present value, and the bad interactions."""

    low: int
    high: int
    before: float
    after: float
    because: list[RecordedInteraction]


class TrustHistory:
    """Answers questions about the past."""

    def __init__(
        self, database: Database, clock: Clock, directory: Directory, cache: TrustCache, visibility: Visibility
    ) -> None:
        self._database = database
        self._clock = clock
        self._directory = directory
        self._cache = cache
        self._visibility = visibility

    def terms(self) -> tuple[float, EvidenceRule]:
        """Return the present moment and the rule by which interactions count."""
        return self._clock.now(), self._cache.rule

    async def interactions(
        self, device_a: str, device_b: str, wanted: Page
    ) -> tuple[list[RecordedInteraction], dict[int, Entry]]:
        """List interactions of a device or a pair, latest recorded first, with the devices that they name."""
        if device_a == device_b:
            raise SelfTrust("a device has no interactions with itself; ask about one device or two different ones")
        await self._visibility.note("interactions", device_a, device_b)
        async with self._database.reading() as tx:
            a, *rest = await self._directory.require(tx, device_a, *([device_b] if device_b else []))
            if rest:
                (await self._visibility.view(tx)).require(a, rest[0])
            else:
                require_device(device_a)
            result = await social.page(tx, wanted, a.number, rest[0].number if rest else None)
            return result, await self._directory.named(tx, _devices_of(result))

    async def history(self, device_a: str, device_b: str, since: float, until: float, points: int) -> list[Point]:
        """Return direct trust of a pair at evenly spaced times; empty if it never interacted."""
        if device_a == device_b:
            raise SelfTrust("a device has no history with itself; ask about two different devices")
        checks.require_finite("since", since, least=0)
        end = checks.require_finite("until", until, least=0) or self._clock.now()
        if not 2 <= (points or 50) <= MOST_POINTS:
            raise InvalidField(f"points must be 2 to {MOST_POINTS} (0 means 50), got {points}")
        await self._visibility.note("history", device_a, device_b)
        async with self._database.reading() as tx:
            a, b = await self._directory.require(tx, device_a, device_b)
            (await self._visibility.view(tx)).require(a, b)
            pairs, _ = await self._cache.pairs_at(tx, 0.0)
            row = pairs.row_of(a.number, b.number)
            number = -1 if row is None else row + 1
            past = await social.history_of(tx, number, end)
            begun = (await records.inherited(tx, number, number + 1)).get(number, Evidence())
        if not len(past):
            return []
        start = since or float(past.at[0])
        if start > end:
            raise InvalidField(f"since {start} is later than until {end}; swap them")
        times = np.linspace(start, end, points or 50).tolist()
        rules = (self._cache.parameters, self._cache.rule)
        return await asyncio.to_thread(_course, past, times, begun, *rules, pairs.prior_of(row))

    async def losses(self, device_id: str, since: float, limit: int) -> tuple[list[Loss], dict[int, Entry]]:
        """List pairs whose direct trust fell most after `since` (0 = the last 30 days), with the devices they name."""
        caller = require_role("admin", "device")
        if caller.role == "device" and caller.subject != device_id:
            raise NotAllowed(f"device {caller.subject} may read only its own losses; give its id")
        start = checks.require_finite("since", since, least=0) or self._clock.now() - DEFAULT_LOSS_SPAN_SECONDS
        wanted = page_size(limit, usual=20)
        await self._visibility.note("losses", device_id)
        async with self._database.reading() as tx:
            device = (await self._directory.require(tx, device_id))[0].number if device_id else None
            pairs, now = await self._cache.pairs_at(tx, 0.0)
            result: list[tuple[float, float, float, int]] = []
            for number in await social.pairs_with_failures(tx, start, device, _MOST_CANDIDATES):
                past = await social.history_of(tx, number, now)
                prior = pairs.prior_of(number - 1)
                rules = (self._cache.parameters, self._cache.rule)
                begun = (await records.inherited(tx, number, number + 1)).get(number, Evidence())
                before, after = await asyncio.to_thread(_fall, past, start, now, begun, *rules, prior)
                if after < before:
                    result.append((after - before, before, after, number))
            worst = [
                Loss(
                    int(pairs.low[number - 1]),
                    int(pairs.high[number - 1]),
                    before,
                    after,
                    await social.failures(tx, number, start, _MOST_CULPRITS),
                )
                for _, before, after, number in sorted(result)[:wanted]
            ]
            named = {number for loss in worst for number in (loss.low, loss.high)}
            named |= {item.reporter for loss in worst for item in loss.because if item.reporter}
            return worst, await self._directory.named(tx, named)


def _devices_of(interactions: list[RecordedInteraction]) -> set[int]:
    return {n for item in interactions for n in (item.low, item.high, item.reporter) if n}


def _course(
    past: Pieces, times: list[float], begun: Evidence, parameters: TrustParameters, rule: EvidenceRule, prior: Prior
) -> list[Point]:
    """Return direct trust at ascending times: each stretch of the history is folded in once.

    begun: what the pair inherited from its owners' record; it precedes the pair's own evidence.
    """
    table, done, points = tabled([begun]), 0, []
    own = shifted(past, int(past.pairs[0])) if len(past) else past
    for at in times:
        reached = int(np.searchsorted(past.at, at, side="right"))
        if reached > done:
            table = fold(table, own.at_rows(slice(done, reached)), parameters)
            done = reached
        known = table[0] if at >= table[0].reference_time else Evidence()
        points.append(Point(at, direct_trust_at(known, at, parameters, rule, prior), done))
    return points


def _fall(
    past: Pieces,
    since: float,
    now: float,
    begun: Evidence,
    parameters: TrustParameters,
    rule: EvidenceRule,
    prior: Prior,
) -> tuple[float, float]:
    """Return the highest direct trust since `since`, at that time or right after an interaction, and that of `now`."""
    moments = sorted({since, *past.at[past.at > since].tolist(), now})
    course = _course(past, moments, begun=begun, parameters=parameters, rule=rule, prior=prior)
    return max(point.direct for point in course), course[-1].direct
