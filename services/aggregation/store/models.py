"""Model versions, uploads and sealed letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import RoundState
from services.aggregation import tables as t
from services.aggregation.domain.records import (
    Letter,
    Model,
)
from services.aggregation.store import sum_sessions
from services.kit.database.rows import Tx, columns, fetch_all, fetch_one, upsert
from services.kit.rpc.paging import Page

_MODELS: sa.Select[Any] = sa.select(*columns(Model, t.models))
_LETTERS: sa.Select[Any] = sa.select(*columns(Letter, t.letters))
NEVER = 2**31 - 1
"""A version that no model has."""


def _latest() -> sa.Select[Any]:
    m = t.models.c
    newest = (
        sa.select(m.task_id, m.line, sa.func.max(m.version).label("version"))
        .where(m.task_id.in_(sa.bindparam("tasks", expanding=True)), m.line >= 0, m.version < sa.bindparam("before"))
        .group_by(m.task_id, m.line)
        .subquery()
    )
    same = sa.and_(m.task_id == newest.c.task_id, m.line == newest.c.line, m.version == newest.c.version)
    return _MODELS.join(newest, same).order_by(m.task_id, m.line)


def _in_use() -> sa.CompoundSelect[Any]:
    p, r = t.participations, t.rounds
    wanted: sa.BindParameter[str] = sa.bindparam("digests", expanding=True)
    open_updates = (
        sa.select(p.c.digest)
        .join(r, sa.and_(r.c.task_id == p.c.task_id, r.c.number == p.c.round))
        .where(p.c.digest.in_(wanted), sa.or_(p.c.is_stored, r.c.state.in_((RoundState.OPEN, RoundState.CLOSING))))
    )
    others = (t.models, t.uploads, t.letters, t.partials)
    return open_updates.union(*(sa.select(other.c.digest).where(other.c.digest.in_(wanted)) for other in others))


def _size(*, of_one: bool) -> sa.CompoundSelect[Any]:
    by_task = (
        sa.select(t.models.c.size_bytes)
        .select_from(t.models.join(t.tasks, t.tasks.c.id == t.models.c.task_id))
        .where(t.models.c.digest == sa.bindparam("p_digest"), t.models.c.line >= 0)
    )
    by_upload = sa.select(t.uploads.c.size_bytes).where(t.uploads.c.digest == sa.bindparam("p_digest"))
    if of_one:
        by_task = by_task.where(t.tasks.c.publisher == sa.bindparam("p_of"))
        by_upload = by_upload.where(t.uploads.c.uploader == sa.bindparam("p_of"))
    return by_task.union_all(by_upload).limit(sa.literal_column("1"))


# Precompiled: building a hot statement costs more than running it.
_LATEST, _IN_USE = _latest(), _in_use()
_SIZE, _SIZE_OF = _size(of_one=False), _size(of_one=True)
_TAKE_LETTERS = (
    t.letters.delete()
    .where(t.letters.c.task_id == sa.bindparam("p_task"), t.letters.c.round <= sa.bindparam("p_round"))
    .returning(t.letters.c.digest)
)
_STATES_BEFORE = (
    t.models.c.task_id == sa.bindparam("task"),
    t.models.c.line < 0,
    t.models.c.version < sa.bindparam("before"),
)
_STATES = _MODELS.where(*_STATES_BEFORE).order_by(t.models.c.version)
_TAKE_STATES = t.models.delete().where(*_STATES_BEFORE).returning(t.models.c.digest)


async def add_models(tx: Tx, models: Sequence[Model]) -> None:
    """Stores model versions; ones that exist stay."""
    await upsert(tx, t.models, [asdict(model) for model in models], ["task_id", "line", "version"], only=[])


def state_line(line: int) -> int:
    """The line that holds what a server optimiser remembers for a model line: no caller may read lines below 0."""
    return -1 - line


async def latest_states(tx: Tx, task_id: str, *, before: int) -> dict[int, Model]:
    """Newest state older than version `before` of every model line that has one."""
    result = await fetch_all(tx, _STATES, Model, {"task": task_id, "before": before})
    return {-1 - state.line: state for state in result}


async def take_states(tx: Tx, task_id: str, before: int) -> list[str]:
    """Forgets states older than version `before`, which no round needs any more; returns their digests."""
    return list((await tx.execute(_TAKE_STATES, {"task": task_id, "before": before})).scalars())


async def latest_models(tx: Tx, task_id: str, *, before: int | None = None) -> list[Model]:
    """Newest version of every line (older than version `before`, if given), in order of line."""
    return (await latest_models_of(tx, [task_id], before=before)).get(task_id, [])


async def latest_models_of(tx: Tx, task_ids: Sequence[str], *, before: int | None = None) -> dict[str, list[Model]]:
    """Newest version of every line of each of these tasks, in order of line."""
    values = {"tasks": list(task_ids), "before": NEVER if before is None else before}
    result: dict[str, list[Model]] = {}
    for model in await fetch_all(tx, _LATEST, Model, values):
        result.setdefault(model.task_id, []).append(model)
    return result


async def list_models(tx: Tx, task_id: str, page: Page) -> list[Model]:
    """Models of a task by line and version; the cursor is `line:version`."""
    query = _MODELS.where(t.models.c.task_id == task_id, t.models.c.line >= 0)
    if page.cursor:
        line, version = map(int, page.cursor.split(":"))
        query = query.where(sa.tuple_(t.models.c.line, t.models.c.version) > sa.tuple_(line, version))
    return await fetch_all(tx, query.order_by(t.models.c.line, t.models.c.version).limit(page.limit), Model)


async def find_size(tx: Tx, digest: str, *, of: str = "") -> int | None:
    """Size of a model with this digest; with `of`, only if that publisher uploaded it or a task of its has it."""
    result = await tx.execute(_SIZE_OF if of else _SIZE, {"p_digest": digest, "p_of": of})
    size: int | None = result.scalars().first()
    return size


async def add_upload(tx: Tx, digest: str, uploader: str, size_bytes: int, now: float) -> None:
    """Notes who uploaded a model."""
    row = {"digest": digest, "uploader": uploader, "size_bytes": size_bytes, "created_at": now}
    await upsert(tx, t.uploads, [row], ["digest", "uploader"], only=[])


async def uploaded_bytes(tx: Tx, uploader: str) -> int:
    """Return the total bytes of a publisher's uploaded models."""
    query = sa.select(sa.func.coalesce(sa.func.sum(t.uploads.c.size_bytes), 0)).where(t.uploads.c.uploader == uploader)
    return int((await tx.execute(query)).scalar_one())


async def remove_upload(tx: Tx, digest: str, uploader: str) -> bool:
    """Delete the record of an upload; return whether it existed."""
    where = (t.uploads.c.digest == digest, t.uploads.c.uploader == uploader)
    return bool((await tx.execute(t.uploads.delete().where(*where))).rowcount)


async def letter_bytes(tx: Tx, places: Sequence[tuple[str, int]], sender: str) -> int:
    """Bytes of a device's letters in these rounds."""
    c = t.letters.c
    query = sa.select(sa.func.coalesce(sa.func.sum(c.size_bytes), 0)).where(
        sa.tuple_(c.task_id, c.round).in_(places), c.sender == sender
    )
    return int((await tx.execute(query)).scalar_one())


async def digests_in_use(tx: Tx, digests: Iterable[str]) -> set[str]:
    """Which of these blobs an open round, a replay, a secure sum, a model, an upload or a letter still needs."""
    wanted = list(digests)
    result = set((await tx.execute(_IN_USE, {"digests": wanted})).scalars())
    return result | await sum_sessions.digests_needed(tx, wanted)


async def add_letter(tx: Tx, letter: Letter) -> Letter:
    """Stores a letter; the same sender's, to the same recipient in the same round and plan, replaces nothing."""
    keys = ["task_id", "round", "recipient", "sender", "kind", "plan_version"]
    await upsert(tx, t.letters, [asdict(letter)], keys, only=[])
    (stored,) = await fetch_all(tx, _LETTERS.where(*(t.letters.c[k] == getattr(letter, k) for k in keys)), Letter)
    return stored


async def find_letter(tx: Tx, letter_id: str) -> Letter | None:
    """One letter."""
    return await fetch_one(tx, _LETTERS.where(t.letters.c.id == letter_id), Letter)


async def list_letters(tx: Tx, task_id: str, number: int, recipient: str) -> list[Letter]:
    """Letters to a device in a round, oldest first."""
    c = t.letters.c
    query = _LETTERS.where(c.task_id == task_id, c.round == number, c.recipient == recipient)
    return await fetch_all(tx, query.order_by(c.sent_at, c.id), Letter)


async def take_letters_of(tx: Tx, device_id: str) -> list[str]:
    """Forgets letters from and to a device; returns their digests."""
    where = (t.letters.c.sender == device_id) | (t.letters.c.recipient == device_id)
    return list((await tx.execute(t.letters.delete().where(where).returning(t.letters.c.digest))).scalars())


async def take_letters(tx: Tx, task_id: str, up_to_round: int) -> list[str]:
    """Forgets letters of rounds that are over; returns their digests."""
    return list((await tx.execute(_TAKE_LETTERS, {"p_task": task_id, "p_round": up_to_round})).scalars())
