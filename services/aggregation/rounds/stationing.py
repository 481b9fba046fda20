"""Sums of updates that base stations add up for their users, checked before they count.

A station is asked when a round closes, for updates the platform took and measured; what each weighs is the platform's
to say. A sum that does not come in time, or is not the sum of these updates, costs time and nothing else: the platform
then adds them itself, with the same bits.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from coterie.records.words import EventKind
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain import auditing
from services.aggregation.domain.accumulator import units
from services.aggregation.domain.records import Event, Participation
from services.aggregation.rounds.live import LiveRound
from services.aggregation.store import models, tasks
from services.aggregation.store.library import PARTIAL_PREFIX_BYTES, Library, StoredFile, read_partial
from services.kit.clock import Clock
from services.kit.database import Database
from services.kit.errors import CoterieError
from services.kit.service_clients import ServiceClients

WAIT_SECONDS = 10.0
"""How long a closing round waits for its stations."""
PUT_ASIDE_SECONDS = 3600.0
"""How long a station whose sum was false is asked for none: who changes little is found out by chance alone."""


@dataclass(frozen=True, slots=True)
class StationSum:
    """A sum that was told and found to be right."""

    line: int
    digest: str
    weight_units: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StationSums:
    """Asks stations, and believes what can be checked."""

    upstreams: ServiceClients
    database: Database
    library: Library
    clock: Clock
    put_aside: dict[str, float] = field(default_factory=dict)
    """Until when, by cell. Kept in memory: a server that starts again asks again, and checks again."""

    async def ask(self, live: LiveRound, missing: Mapping[str, Participation]) -> list[StationSum]:
        """Sums of those of the missing updates that stations are to add up."""
        of_cell: dict[str, dict[int, list[Participation]]] = defaultdict(lambda: defaultdict(list))
        for p in missing.values():
            cell = live.station_of(p.device_id)
            if cell and self.put_aside.get(cell, 0.0) <= self.clock.now():
                of_cell[cell][p.model_index].append(p)
        if not of_cell:
            return []
        told = await asyncio.gather(*(self._ask(live, cell, lines) for cell, lines in of_cell.items()))
        async with self.database.writing() as tx:
            await tasks.add_events(tx, *(event for _, events in told for event in events))
        return [found for sums, _ in told for found in sums]

    async def _ask(
        self, live: LiveRound, cell: str, lines: Mapping[int, Sequence[Participation]]
    ) -> tuple[list[StationSum], list[Event]]:
        """A station's sums as far as they are right, and what is told of each."""
        orders = [order_of(live, line, updates) for line, updates in lines.items()]
        request = topology.AddUpRequest(cell_id=cell, orders=orders, wait_seconds=WAIT_SECONDS)
        sums: Sequence[topology.ToldSum]
        try:
            sums = (await self.upstreams.topology.AddUp(request, timeout=WAIT_SECONDS + 5.0)).sums
            faults = await asyncio.to_thread(self._faults, live, lines, orders, sums)
            if any(faults):
                self.put_aside[cell] = self.clock.now() + PUT_ASIDE_SECONDS
                until = f"; it is asked for no sum for {PUT_ASIDE_SECONDS / 60.0:.0f} minutes"
                faults = [fault and fault + until for fault in faults]
        except CoterieError as error:
            sums, faults = [], [error.message] * len(orders)
        found, events, now = list[StationSum](), list[Event](), self.clock.now()
        for number, (line, updates) in enumerate(lines.items()):
            what = f"{len(updates)} update{'s' if len(updates) > 1 else ''} of model {line}"
            kind, message = EventKind.STATION_ADDED, f"{cell}: its station added {what} up"
            if faults[number]:
                kind = EventKind.STATION_LEFT_OUT
                message = f"{cell}: the platform added {what} up itself: {faults[number]}"
            else:
                weight, devices = sum(units(p.weight) for p in updates), tuple(p.device_id for p in updates)
                found.append(StationSum(line, sums[number].digest, weight, devices))
            events.append(Event(live.task.id, now, kind, message, live.round.number, cell=cell, updates=len(updates)))
        await self.discard({told.digest for told in sums} - {each.digest for each in found})
        return found, events

    async def discard(self, digests: set[str]) -> None:
        """Removes sums that nobody needs any more; what else has the very bytes of one stays."""
        if digests:
            async with self.database.reading() as tx:
                unused = digests - await models.digests_in_use(tx, digests)
            await self.library.blobs.delete_all(unused)

    def _faults(
        self,
        live: LiveRound,
        lines: Mapping[int, Sequence[Participation]],
        orders: Sequence[topology.SumOrder],
        sums: Sequence[topology.ToldSum],
    ) -> list[str]:
        """Why each of the sums a station told is not one, empty where nothing speaks against it. In a worker thread."""
        told = zip(lines.items(), orders, sums, strict=True)
        return [self._fault(live, line, order, updates, each) for (line, updates), order, each in told]

    def _fault(
        self,
        live: LiveRound,
        line: int,
        order: topology.SumOrder,
        updates: Sequence[Participation],
        told: topology.ToldSum,
    ) -> str:
        base, blobs = self.library.layout(*live.bases[line]), self.library.blobs
        if told.size_bytes != PARTIAL_PREFIX_BYTES + 8 * base.elements:
            return f"its sum has {told.size_bytes} bytes, which is not one of {base.elements} numbers"
        if struct.unpack("<q", blobs.read(told.digest, 0, PARTIAL_PREFIX_BYTES)) != (base.elements,):
            return f"its sum does not say that it has {base.elements} numbers"
        most = auditing.longest([(p.weight, p.norm) for p in updates], order.scale, base.elements)
        if not auditing.norm_of(read_partial(blobs, told.digest)) <= most:
            return "its sum is longer than its users' updates together"
        files = [(StoredFile(blobs, p.digest, p.payload_bytes), p.weight) for p in updates]
        layouts = [file.layout() for file, _ in files]
        for start, stop in auditing.spots(base.elements, np.random.default_rng(secrets.randbits(128))):
            right = np.zeros(stop - start, np.int64)
            for (file, weight), layout in zip(files, layouts, strict=True):
                right += auditing.terms_at(base, layout, file, weight, order.scale, start, stop)
            place = PARTIAL_PREFIX_BYTES + 8 * start
            if bytes(blobs.read(told.digest, place, 8 * (stop - start))) != right.astype("<i8").tobytes():
                return "its sum is not that of its users' updates"
        return ""


def order_of(live: LiveRound, line: int, updates: Sequence[Participation]) -> topology.SumOrder:
    """What a station is asked to add up: digests and weights, and nobody's name."""
    digest, size_bytes = live.bases[line]
    return topology.SumOrder(
        model_digest=digest,
        model_bytes=size_bytes,
        scale=live.round.scale,
        room=len(live.roster.items),
        summands=[topology.Summand(digest=p.digest, size_bytes=p.payload_bytes, weight=p.weight) for p in updates],
    )
