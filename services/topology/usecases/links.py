"""Links that devices measured."""

from __future__ import annotations

import math

from services.kit.database.engine import Database
from services.kit.rpc.parameters import BadParameters
from services.kit.rpc.principal import require_role
from services.kit.runtime.clock import Clock
from services.topology.store import links as measured

MAX_LINKS = 10_000
"""Most links per request and per device of a task, so that a device cannot fill the table with invented devices."""
LONGEST_ID = 64
MOST_SECONDS = 1e6
"""Of a link, as of the times in a device's profile: sums of them stay numbers."""


class Links:
    """How long a message takes from device to device, and from a device to its cell."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def report(self, task_id: str, links: list[measured.Link]) -> None:
        """Stores link times a device measured, as its own word and no other's; an admin speaks for both ends.

        They are used from the next plan on.
        """
        caller = require_role("device", "admin")
        if len(links) > MAX_LINKS:
            raise BadParameters(f"at most {MAX_LINKS} links are taken at once, {len(links)} came")
        for index, (a, b, way) in enumerate(links):
            if max(len(a), len(b)) > LONGEST_ID:
                raise BadParameters(f"link {index}: ids have up to {LONGEST_ID} characters")
            if a == b or not 0 < way.seconds <= MOST_SECONDS:
                raise BadParameters(
                    f"link {index} ({a}, {b}): two devices and a time above 0 and of at most {MOST_SECONDS:,.0f} s, "
                    f"not {way.seconds}"
                )
            parts = (way.round_trip_seconds, way.bytes_per_second)
            if not all(math.isfinite(part) and part >= 0 for part in parts):
                raise BadParameters(f"link {index} ({a}, {b}): a round trip and a throughput of 0 or more, not {parts}")
            if caller.role == "device" and caller.subject not in (a, b):
                raise BadParameters(f"link {index} ({a}, {b}): a device reports its own links only")
        if caller.role == "device":
            reported = [(caller.subject, b if a == caller.subject else a, way) for a, b, way in links]
        else:
            reported = [item for a, b, way in links for item in ((a, b, way), (b, a, way))]
        async with self._database.writing() as tx:
            await measured.put(tx, task_id, reported, self._clock.now())
            if caller.role == "device" and await measured.count(tx, task_id, caller.subject) > MAX_LINKS:
                raise BadParameters(f"at most {MAX_LINKS} links of a device are kept; report those of your plan alone")
