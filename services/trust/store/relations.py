"""Relations in the database.

Ownership, parental and friendship relations follow from profiles and declarations: they are computed from those tables
and never stored. Co-location, co-work and social ones are derived from interactions and stored, as are imported ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import RelationKind
from services.kit.database.rows import Tx, batches, columns, fetch_one, inserting
from services.kit.rpc.paging import Page
from services.trust.domain.kinds import KINDS
from services.trust.domain.records import Friendship, SocialRelation
from services.trust.tables import devices, friendships, owners, relations

_RANK: dict[RelationKind, int] = {kind: rank for rank, kind in enumerate(KINDS)}
_CHUNK = 2_000
_FRIENDSHIP = columns(Friendship, friendships)


async def of_device(tx: Tx, number: int, wanted: Page) -> list[tuple[int, SocialRelation]]:
    """List a device's relations in order of the other device and the kind, each with its cursor."""
    result = await _found(tx, number)
    place = result.c.other * 10 + result.c.rank
    query = sa.select(place.label("place"), result).order_by(place).limit(wanted.limit)
    if wanted.cursor:
        query = query.where(place > int(wanted.cursor))
    return [(row.place, _relation(number, row)) for row in await tx.execute(query)]


async def between(tx: Tx, a: int, b: int) -> list[SocialRelation]:
    """List every relation of two devices."""
    result = await _found(tx, a)
    query = sa.select(result).where(result.c.other == b).order_by(result.c.rank)
    return [_relation(a, row) for row in await tx.execute(query)]


async def _found(tx: Tx, number: int) -> sa.Subquery:
    """A device's relations, each kind with each other device once, from all sources."""
    every = _every((await tx.execute(_profile(number))).one()).subquery()
    query = sa.select(
        every.c.rank,
        every.c.other,
        sa.func.max(every.c.strength).label("strength"),
        sa.func.max(every.c.because).label("because"),
        sa.func.min(every.c.since).label("since"),
    )
    return query.group_by(every.c.rank, every.c.other).subquery()


def _profile(number: int) -> sa.Select[Any]:
    return sa.select(devices).where(devices.c.number == number)


def _every(row: Any) -> sa.CompoundSelect[Any]:
    """Relations of one device with any other, as rows of rank, other, strength, because, since."""
    other, own = devices.alias("other"), row.number
    same_owner = other.c.owner_number == row.owner_number
    owner = sa.select(owners.c.name).where(owners.c.number == row.owner_number).scalar_subquery()
    make = (other.c.kind == row.kind) & (other.c.brand == row.brand) & (other.c.model == row.model)
    known = sa.literal(bool(row.brand and row.model))
    friend = friendships.alias("friend")
    befriended = (friend.c.strength > 0) & sa.or_(
        (friend.c.low == row.owner_number) & (friend.c.high == other.c.owner_number),
        (friend.c.high == row.owner_number) & (friend.c.low == other.c.owner_number),
    )
    since = sa.case((other.c.registered_at > row.registered_at, other.c.registered_at), else_=row.registered_at)
    stored = sa.case({kind.value: _RANK[kind] for kind in KINDS}, value=relations.c.kind)
    partner = sa.case((relations.c.low == own, relations.c.high), else_=relations.c.low)
    return sa.union_all(
        _row(RelationKind.OWNERSHIP, other, 1.0, sa.literal("both belong to ") + owner, since).where(
            same_owner, other.c.number != own
        ),
        _row(RelationKind.PARENTAL, other, 1.0, f"both are a {row.brand} {row.model} ({row.kind})", since).where(
            make, known, other.c.number != own
        ),
        _row(RelationKind.FRIENDSHIP, other, friend.c.strength, "their owners are friends", friend.c.since).join(
            friend, befriended
        ),
        sa.select(
            stored.label("rank"),
            partner.label("other"),
            relations.c.strength.label("strength"),
            relations.c.because.label("because"),
            relations.c.since.label("since"),
        ).where((relations.c.low == own) | (relations.c.high == own)),
    )


def _row(kind: RelationKind, other: Any, strength: Any, because: Any, since: Any) -> sa.Select[Any]:
    def column(value: Any) -> Any:
        return sa.literal(value) if isinstance(value, str | float | int) else value

    return sa.select(
        column(_RANK[kind]).label("rank"),
        other.c.number.label("other"),
        column(strength).label("strength"),
        column(because).label("because"),
        column(since).label("since"),
    )


def _relation(own_number: int, row: Any) -> SocialRelation:
    return SocialRelation(
        kind=KINDS[row.rank], a=own_number, b=row.other, strength=row.strength, because=row.because, since=row.since
    )


async def counts(tx: Tx) -> dict[str, int]:
    """Count the relations of each kind."""
    size = sa.func.count()
    same_owner = sa.select((size * (size - 1) / 2).label("n")).select_from(devices).group_by(devices.c.owner_number)
    same_make = (
        sa.select((size * (size - 1) / 2).label("n"))
        .where(devices.c.brand != "", devices.c.model != "")
        .group_by(devices.c.kind, devices.c.brand, devices.c.model)
    )
    one, other = devices.alias("one"), devices.alias("another")
    befriended = (
        sa.select(size)
        .select_from(friendships)
        .join(one, one.c.owner_number == friendships.c.low)
        .join(other, other.c.owner_number == friendships.c.high)
        .where(friendships.c.strength > 0)
    )
    result = {
        kind: int((await tx.execute(sa.select(sa.func.coalesce(sa.func.sum(query.c.n), 0)))).scalar_one())
        for kind, query in (("ownership", same_owner.subquery()), ("parental", same_make.subquery()))
    }
    result["friendship"] = int((await tx.execute(befriended)).scalar_one())
    stored = sa.select(relations.c.kind, size).group_by(relations.c.kind)
    for kind, number in (await tx.execute(stored)).all():
        result[kind] = result.get(kind, 0) + int(number)
    return {kind.value: result.get(kind.value, 0) for kind in KINDS}


async def add(tx: Tx, rows: Iterable[dict[str, Any]]) -> int:
    """Store relations that are not stored yet; return how many."""
    statement = inserting(tx, relations).on_conflict_do_nothing()
    before = await _stored(tx)
    for part in batches(list(rows), _CHUNK):
        await tx.execute(statement, part)
    return await _stored(tx) - before


async def _stored(tx: Tx) -> int:
    return int((await tx.execute(sa.select(sa.func.count()).select_from(relations))).scalar_one())


async def stored_ties(tx: Tx) -> list[tuple[str, int, int]]:
    """Return every stored relation as kind, low and high device."""
    query = sa.select(relations.c.kind, relations.c.low, relations.c.high)
    return [(row.kind, row.low, row.high) for row in await tx.execute(query)]


async def stamp(tx: Tx) -> tuple[object, ...]:
    """Return a value that changes whenever any relation may have changed."""
    query = sa.select(
        sa.select(sa.func.count()).select_from(devices).scalar_subquery(),
        sa.select(sa.func.count()).select_from(relations).scalar_subquery(),
        sa.select(sa.func.max(relations.c.number)).scalar_subquery(),
        sa.select(sa.func.count()).select_from(friendships).scalar_subquery(),
        sa.select(sa.func.max(friendships.c.since)).scalar_subquery(),
    )
    return tuple((await tx.execute(query)).one())


async def every_pair(tx: Tx, at: float | None, among: Sequence[int] | None = None) -> list[tuple[int, int, str, float]]:
    """Return all relations (`among` some devices) that held at `at` (None = now): low, high, kind, strength."""
    low, high, friend = devices.alias("low"), devices.alias("high"), friendships.alias("friend")
    begun = sa.case((low.c.registered_at > high.c.registered_at, low.c.registered_at), else_=high.c.registered_at)
    ordered = low.c.number < high.c.number
    same_make = sa.and_(
        low.c.kind == high.c.kind,
        low.c.brand == high.c.brand,
        low.c.model == high.c.model,
        low.c.brand != "",
        low.c.model != "",
    )
    befriended = (friend.c.strength > 0) & sa.or_(
        (friend.c.low == low.c.owner_number) & (friend.c.high == high.c.owner_number),
        (friend.c.high == low.c.owner_number) & (friend.c.low == high.c.owner_number),
    )
    one = sa.literal(1.0)

    def row(kind: RelationKind, strength: Any, since: Any) -> sa.Select[Any]:
        ends = (low.c.number.label("low"), high.c.number.label("high"))
        return sa.select(*ends, sa.literal(kind.value).label("kind"), strength.label("strength"), since.label("since"))

    united = sa.union_all(
        row(RelationKind.OWNERSHIP, one, begun).join(high, (low.c.owner_number == high.c.owner_number) & ordered),
        row(RelationKind.PARENTAL, one, begun).join(high, same_make & ordered),
        row(RelationKind.FRIENDSHIP, friend.c.strength, friend.c.since).join(high, ordered).join(friend, befriended),
        sa.select(relations.c.low, relations.c.high, relations.c.kind, relations.c.strength, relations.c.since),
    ).subquery()
    query = sa.select(united.c.low, united.c.high, united.c.kind, united.c.strength)
    if among is not None:
        query = query.where(united.c.low.in_(among), united.c.high.in_(among))
    if at is not None:
        query = query.where(united.c.since <= at)
    return [(r.low, r.high, r.kind, r.strength) for r in await tx.execute(query)]


async def friends(tx: Tx) -> list[tuple[str, str]]:
    """Return the pairs of ids of owners who are friends."""
    one, other = owners.alias("one"), owners.alias("another")
    query = (
        sa.select(one.c.id.label("one_id"), other.c.id.label("other_id"))
        .select_from(friendships)
        .join(one, one.c.number == friendships.c.low)
        .join(other, other.c.number == friendships.c.high)
        .where(friendships.c.strength > 0)
    )
    return [(row.one_id, row.other_id) for row in await tx.execute(query)]


async def friendship(tx: Tx, low: int, high: int) -> Friendship | None:
    """Return what two owners declared of each other, or None."""
    query = sa.select(*_FRIENDSHIP).where(friendships.c.low == low, friendships.c.high == high)
    return await fetch_one(tx, query.with_for_update(), Friendship)


async def friendships_of(tx: Tx, owner: int, wanted: Page) -> list[tuple[int, str, Friendship]]:
    """List an owner's friendships in order of the other owner, with that owner's number and id."""
    other = sa.case((friendships.c.low == owner, friendships.c.high), else_=friendships.c.low)
    query = sa.select(other.label("other"), owners.c.id, *_FRIENDSHIP).join_from(
        friendships, owners, owners.c.number == other
    )
    query = query.where((friendships.c.low == owner) | (friendships.c.high == owner)).order_by(other)
    if wanted.cursor:
        query = query.where(other > int(wanted.cursor))
    rows = await tx.execute(query.limit(wanted.limit))
    return [(number, name, Friendship(*rest)) for number, name, *rest in rows]


async def held_friendships(tx: Tx, among: Sequence[int]) -> list[Friendship]:
    """List friendships that both declared, between these owners, by number."""
    inside = set(among)
    held: list[Friendship] = []
    for part in batches(sorted(inside), _CHUNK):
        query = sa.select(*_FRIENDSHIP).where(friendships.c.strength > 0, friendships.c.low.in_(part))
        held += [Friendship(*row) for row in await tx.execute(query)]
    return [item for item in held if item.high in inside]


async def set_friendship(tx: Tx, friendship: Friendship) -> None:
    """Store what two owners declared of each other; delete it when neither declares anything."""
    same = (friendships.c.low == friendship.low) & (friendships.c.high == friendship.high)
    await tx.execute(sa.delete(friendships).where(same))
    if friendship.low_strength or friendship.high_strength:
        await tx.execute(sa.insert(friendships), {**asdict(friendship), "strength": friendship.strength})


async def befriended(tx: Tx, at: float | None) -> list[tuple[int, int, str, float]]:
    """Return devices whose owners are friends (at `at`; None = now): low, high, kind, strength."""
    one, other = devices.alias("one"), devices.alias("another")
    query = (
        sa.select(one.c.number, other.c.number.label("second"), friendships.c.strength)
        .select_from(friendships)
        .join(one, one.c.owner_number == friendships.c.low)
        .join(other, other.c.owner_number == friendships.c.high)
        .where(friendships.c.strength > 0)
    )
    if at is not None:
        query = query.where(friendships.c.since <= at)
    kind = RelationKind.FRIENDSHIP.value
    return [(min(a, b), max(a, b), kind, strength) for a, b, strength in await tx.execute(query)]


async def friendship_stamp(tx: Tx) -> tuple[object, ...]:
    """Return a value that changes with the devices of friends; its first item is the number of friendships."""
    held = sa.select(friendships).where(friendships.c.strength > 0).subquery()
    query = sa.select(
        sa.select(sa.func.count()).select_from(held).scalar_subquery(),
        sa.select(sa.func.max(held.c.since)).scalar_subquery(),
        sa.select(sa.func.sum(held.c.strength)).scalar_subquery(),
        sa.select(sa.func.max(devices.c.number)).scalar_subquery(),
    )
    return tuple((await tx.execute(query)).one())
