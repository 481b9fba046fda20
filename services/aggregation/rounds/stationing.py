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
from services.kit.stubs import Upstreams

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

    upstreams: Upstreams
    database: Database
    library: Library
    clock: Clock
    put_aside: dict[str, float] = field(default_factory=dict)
    """Until when, by cell. Kept in memory: a server that starts again asks again, and checks again."""

    async def ask(self, live: LiveRound, missing: Mapping[str, Participation]) -> list[StationSum]:
        """Sums of those of the missing updates that stations are to add up."""
        groups: dict[tuple[str, int], list[Participation]] = defaultdict(list)
        for p in missing.values():
            cell = live.station_of(p.device_id)
            if cell and self.put_aside.get(cell, 0.0) <= self.clock.now():
                groups[cell, p.model_index].append(p)
        if not groups:
            return []
        told = await asyncio.gather(*(self._ask(live, cell, line, of) for (cell, line), of in groups.items()))
        now, number = self.clock.now(), live.round.number
        events = [
            Event(live.task.id, now, kind, message, number, cell=cell, updates=len(of))
            for (_, kind, message), ((cell, _), of) in zip(told, groups.items(), strict=True)
        ]
        async with self.database.writing() as tx:
            await tasks.add_events(tx, *events)
        return [found for found, *_ in told if found is not None]

    async def _ask(
        self, live: LiveRound, cell: str, line: int, updates: Sequence[Participation]
    ) -> tuple[StationSum | None, EventKind, str]:
        """A station's sum if it is right, and what is told of it."""
        order = order_of(live, line, updates)
        request = topology.AddUpRequest(cell_id=cell, order=order, wait_seconds=WAIT_SECONDS)
        try:
            reply = await self.upstreams.topology.AddUp(request, timeout=WAIT_SECONDS + 5.0)
            fault = await asyncio.to_thread(self._fault, live, line, order, updates, reply)
            if fault:
                self.put_aside[cell] = self.clock.now() + PUT_ASIDE_SECONDS
                fault += f"; it is asked for no sum for {PUT_ASIDE_SECONDS / 60.0:.0f} minutes"
        except CoterieError as error:
            reply, fault = topology.AddUpReply(), error.message
        what = f"{len(updates)} update{'s' if len(updates) > 1 else ''} of model {line}"
        if fault:
            await self.discard({reply.digest} - {""})
            message = f"{cell}: the platform added {what} up itself: {fault}"
            return None, EventKind.STATION_LEFT_OUT, message
        devices = tuple(p.device_id for p in updates)
        found = StationSum(line, reply.digest, sum(units(p.weight) for p in updates), devices)
        return found, EventKind.STATION_ADDED, f"{cell}: its station added {what} up"

    async def discard(self, digests: set[str]) -> None:
        """Removes sums that nobody needs any more; what else has the very bytes of one stays."""
        if digests:
            async with self.database.reading() as tx:
                unused = digests - await models.digests_in_use(tx, digests)
            await self.library.blobs.delete_all(unused)

    def _fault(
        self,
        live: LiveRound,
        line: int,
        order: topology.SumOrder,
        updates: Sequence[Participation],
        reply: topology.AddUpReply,
    ) -> str:
        """Why what a station told is not the sum; empty where nothing speaks against it. In a worker thread."""
        base, blobs = self.library.layout(*live.bases[line]), self.library.blobs
        if reply.size_bytes != PARTIAL_PREFIX_BYTES + 8 * base.elements:
            return f"its sum has {reply.size_bytes} bytes, which is not one of {base.elements} numbers"
        if struct.unpack("<q", blobs.read(reply.digest, 0, PARTIAL_PREFIX_BYTES)) != (base.elements,):
            return f"its sum does not say that it has {base.elements} numbers"
        most = auditing.longest([(p.weight, p.norm) for p in updates], order.scale, base.elements)
        if not auditing.norm_of(read_partial(blobs, reply.digest)) <= most:
            return "its sum is longer than its users' updates together"
        files = [(StoredFile(blobs, p.digest, p.payload_bytes), p.weight) for p in updates]
        layouts = [file.layout() for file, _ in files]
        for start, stop in auditing.spots(base.elements, np.random.default_rng(secrets.randbits(128))):
            right = np.zeros(stop - start, np.int64)
            for (file, weight), layout in zip(files, layouts, strict=True):
                right += auditing.terms_at(base, layout, file, weight, order.scale, start, stop)
            place = PARTIAL_PREFIX_BYTES + 8 * start
            if bytes(blobs.read(reply.digest, place, 8 * (stop - start))) != right.astype("<i8").tobytes():
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
