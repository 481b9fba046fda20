"""Base stations."""

from __future__ import annotations

import math

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.database.engine import Database
from services.kit.rpc.principal import require_role
from services.kit.runtime.clock import Clock
from services.topology.errors import BadCell, UnknownCell
from services.topology.store import cells as stations
from services.topology.store import stations as at_work


class RegisteredCells:
    """The cells that rounds are scheduled over."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def put(self, cell: pb.Cell) -> pb.Cell:
        """Registers or changes a base station."""
        require_role("admin")
        if not 1 <= len(cell.id) <= 64:
            raise BadCell(f"id must have 1 to 64 characters, not {len(cell.id)}")
        if not 1 <= cell.blocks <= 1000:
            raise BadCell(f"blocks must be from 1 to 1000, not {cell.blocks}")
        positive = ("power_watts", "bandwidth_hertz", "delay_limit_seconds", "radius_metres")
        for name in (*positive, "x_metres", "y_metres"):
            value = getattr(cell, name)
            if not math.isfinite(value) or (name in positive and value <= 0):
                raise BadCell(f"{name} must be a finite number{' above 0' if name in positive else ''}, not {value}")
        cell.ClearField("station")
        async with self._database.writing() as tx:
            await stations.put(tx, cell)
            lease = await at_work.lease_of(tx, cell.id)
            if lease is not None and lease.ends_at <= self._clock.now():
                await at_work.forget(tx, cell.id)  # the admin puts it back to use without its lost station
        return cell

    async def list(self) -> list[pb.Cell]:
        """All base stations."""
        async with self._database.reading() as tx:
            cells, leases = await stations.every(tx), await at_work.leases(tx)
        now = self._clock.now()
        for cell in cells:
            cell.station = cell.id in leases and leases[cell.id].ends_at > now
        return cells

    async def remove(self, cell_id: str) -> None:
        """Forgets a base station."""
        require_role("admin")
        async with self._database.writing() as tx:
            if not await stations.remove(tx, cell_id):
                raise UnknownCell(f"no cell {cell_id!r}; list them with GET /v1/cells")
            await at_work.forget(tx, cell_id)
