"""Base stations in the database."""

from __future__ import annotations

import sqlalchemy as sa

from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.database.rows import Tx, upsert
from services.topology.tables import cells


async def put(tx: Tx, cell: pb.Cell) -> None:
    """Store a cell, replacing an earlier one with its id."""
    await upsert(tx, cells, [{"id": cell.id, "cell": cell.SerializeToString()}], ["id"])


async def every(tx: Tx) -> list[pb.Cell]:
    """All cells by id."""
    rows = await tx.execute(sa.select(cells.c.cell).order_by(cells.c.id))
    return [pb.Cell.FromString(data) for data in rows.scalars()]


async def remove(tx: Tx, cell_id: str) -> bool:
    """Delete a cell; return whether it existed."""
    return bool((await tx.execute(cells.delete().where(cells.c.id == cell_id))).rowcount)
