"""API keys and enrolment tokens in the database, as digests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from services.kit.database.rows import Tx, columns, fetch_all, fetch_one
from services.kit.rpc.paging import Page
from services.trust.domain.records import ApiKey, Token
from services.trust.tables import keys, owners, tokens

_COLUMNS = columns(ApiKey, keys)
# Compiled once: every call with a key that is not cached runs it.
_BY_IDS: sa.Select[Any] = sa.select(*_COLUMNS).where(keys.c.id.in_(sa.bindparam("ids", expanding=True)))


async def add(tx: Tx, key: ApiKey) -> None:
    await tx.execute(sa.insert(keys), asdict(key))


async def by_id(tx: Tx, key_id: str) -> ApiKey | None:
    """Return the key with that id, revoked or not: one indexed read."""
    return (await by_ids(tx, [key_id])).get(key_id)


async def by_ids(tx: Tx, key_ids: Sequence[str]) -> dict[str, ApiKey]:
    """Return the existing keys of these, revoked or not: one indexed read."""
    return {key.id: key for key in await fetch_all(tx, _BY_IDS, ApiKey, {"ids": list(key_ids)})}


async def by_name(tx: Tx, role: str, name: str) -> list[ApiKey]:
    """List every key ever made for that role and name."""
    query = sa.select(*_COLUMNS).where(keys.c.role == role, keys.c.name == name)
    return await fetch_all(tx, query, ApiKey)


async def page(tx: Tx, wanted: Page, roles: Sequence[str], subject: str = "") -> list[ApiKey]:
    """List keys of these roles, or of one subject, in order of id."""
    query = sa.select(*_COLUMNS).where(keys.c.id > wanted.cursor, keys.c.role.in_(roles))
    if subject:
        query = query.where(keys.c.subject == subject)
    return await fetch_all(tx, query.order_by(keys.c.id).limit(wanted.limit), ApiKey)


async def end(tx: Tx, key_id: str, at: float) -> None:
    """Let a key expire at `at`, unless it expires earlier."""
    c = keys.c
    await tx.execute(
        _live().where(c.id == key_id, sa.or_(c.expires_at.is_(None), c.expires_at > at)).values(expires_at=at)
    )


async def live_count(tx: Tx, role: str, now: float) -> int:
    """Return the number of valid keys of a role."""
    c = keys.c
    going_on = sa.or_(c.expires_at.is_(None), c.expires_at > now)
    query = sa.select(sa.func.count()).where(c.role == role, c.revoked_at.is_(None), going_on)
    return int((await tx.execute(query)).scalar_one())


async def revoke(tx: Tx, key_id: str, at: float) -> None:
    await tx.execute(_live().where(keys.c.id == key_id).values(revoked_at=at))


async def revoke_subject(tx: Tx, subject: str, at: float) -> None:
    await tx.execute(_live().where(keys.c.subject == subject).values(revoked_at=at))


def _live() -> sa.Update:
    return sa.update(keys).where(keys.c.revoked_at.is_(None))


async def add_token(tx: Tx, token: Token, created_at: float) -> None:
    await tx.execute(
        sa.insert(tokens),
        {
            "id": token.id,
            "digest": token.digest,
            "owner_number": token.owner_number,
            "uses_left": token.uses_left,
            "created_at": created_at,
            "expires_at": token.expires_at,
        },
    )


async def token_for_update(tx: Tx, token_id: str) -> Token | None:
    """Return the token with that id, locked until the transaction ends."""
    query = (
        sa.select(*columns(Token, tokens, owner_id=owners.c.id))
        .join(owners, owners.c.number == tokens.c.owner_number)
        .where(tokens.c.id == token_id)
        .with_for_update(of=tokens)
    )
    return await fetch_one(tx, query, Token)


async def spend_token(tx: Tx, token_id: str) -> None:
    """Use a token once."""
    statement = sa.update(tokens).where(tokens.c.id == token_id, tokens.c.uses_left > 0)
    await tx.execute(statement.values(uses_left=tokens.c.uses_left - 1))
