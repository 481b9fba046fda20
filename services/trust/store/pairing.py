"""Links to owners' browsers, and their decisions, in the database."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from services.kit.database.rows import Tx, columns, fetch_all, fetch_one
from services.trust.domain.records import Decision, Link
from services.trust.tables import decisions, keys, links

_LINK, _DECISION = columns(Link, links), columns(Decision, decisions)


async def add(tx: Tx, link: Link) -> None:
    await tx.execute(sa.insert(links), asdict(link))


async def by_id(tx: Tx, link_id: str, *, lock: bool = False) -> Link | None:
    """Return the link with that id; `lock` locks it until the transaction ends."""
    query = sa.select(*_LINK).where(links.c.id == link_id)
    return await fetch_one(tx, query.with_for_update() if lock else query, Link)


async def of_device(tx: Tx, device_id: str) -> list[Link]:
    """List a device's links, newest first."""
    query = sa.select(*_LINK).where(links.c.device_id == device_id).order_by(links.c.id.desc())
    return await fetch_all(tx, query, Link)


async def change(tx: Tx, link_id: str, **values: Any) -> None:
    """Change columns of a link."""
    await tx.execute(sa.update(links).where(links.c.id == link_id).values(values))


async def drop_stale(tx: Tx, device_id: str, now: float) -> None:
    """Delete a device's links that no browser took in time."""
    stale = (links.c.claimed_at == 0.0) & (links.c.expires_at <= now)
    await tx.execute(sa.delete(links).where(links.c.device_id == device_id, stale))


async def drop(tx: Tx, link_id: str) -> None:
    """Delete a link, its API keys and its waiting decisions."""
    await drop_keys(tx, link_id)
    await tx.execute(sa.delete(decisions).where(decisions.c.link_id == link_id, decisions.c.state == "waiting"))
    await tx.execute(sa.delete(links).where(links.c.id == link_id))


async def drop_keys(tx: Tx, link_id: str) -> None:
    """Delete the API keys of a link's browser."""
    await tx.execute(sa.delete(keys).where(keys.c.link_id == link_id))


async def forget_device(tx: Tx, device_id: str) -> None:
    """Delete all links and decisions of a device, and the keys of its browsers."""
    own = sa.select(links.c.id).where(links.c.device_id == device_id)
    await tx.execute(sa.delete(keys).where(keys.c.link_id.in_(own)))
    await tx.execute(sa.delete(decisions).where(decisions.c.device_id == device_id))
    await tx.execute(sa.delete(links).where(links.c.device_id == device_id))


async def add_decision(tx: Tx, decision: Decision) -> None:
    await tx.execute(sa.insert(decisions), asdict(decision))


async def decision(tx: Tx, device_id: str, decision_id: str) -> Decision | None:
    """Return a device's decision with that id."""
    return await fetch_one(tx, _decisions(device_id).where(decisions.c.id == decision_id), Decision)


async def decisions_of(tx: Tx, device_id: str, waiting: bool, limit: int) -> list[Decision]:
    """List a device's decisions, newest first, or the waiting ones, oldest first."""
    query = _decisions(device_id).limit(limit)
    if waiting:
        return await fetch_all(tx, query.where(decisions.c.state == "waiting").order_by(decisions.c.id), Decision)
    return await fetch_all(tx, query.order_by(decisions.c.id.desc()), Decision)


async def waiting_count(tx: Tx, device_id: str) -> int:
    """Return the number of a device's waiting decisions."""
    query = sa.select(sa.func.count()).select_from(decisions)
    result = await tx.execute(query.where(decisions.c.device_id == device_id, decisions.c.state == "waiting"))
    return int(result.scalar_one())


async def answer(tx: Tx, decision_id: str, state: str, note: str) -> None:
    """Store the device's answer to a decision, unless it has one."""
    waiting = (decisions.c.id == decision_id) & (decisions.c.state == "waiting")
    await tx.execute(sa.update(decisions).where(waiting).values(state=state, note=note))


async def drop_answered(tx: Tx, device_id: str, but: int) -> None:
    """Delete a device's answered decisions except the newest."""
    retained = sa.select(decisions.c.id).where(decisions.c.device_id == device_id).order_by(decisions.c.id.desc())
    old = decisions.c.id.not_in(retained.limit(but)) & (decisions.c.state != "waiting")
    await tx.execute(sa.delete(decisions).where(decisions.c.device_id == device_id, old))


def _decisions(device_id: str) -> sa.Select[Any]:
    return sa.select(*_DECISION).where(decisions.c.device_id == device_id)
