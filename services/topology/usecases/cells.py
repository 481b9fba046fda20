"""Base stations."""

from __future__ import annotations

import math

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.caller import require_role
from services.kit.database import Database
from services.topology.errors import BadCell, UnknownCell
from services.topology.store import cells as stations


class RegisteredCells:
    """The cells that rounds are scheduled over."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        async with self._database.writing() as tx:
            await stations.put(tx, cell)
        return cell

    async def list(self) -> list[pb.Cell]:
        """All base stations."""
        async with self._database.reading() as tx:
            return await stations.every(tx)

    async def remove(self, cell_id: str) -> None:
        """Forgets a base station."""
        require_role("admin")
        async with self._database.writing() as tx:
            if not await stations.remove(tx, cell_id):
                raise UnknownCell(f"no cell {cell_id!r}; list them with GET /v1/cells")
