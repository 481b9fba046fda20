"""Sessions of secure sums: their clerks, masked updates and shares."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import ClerkState, SumState
from coterie.secure_sums.terms import Place
from services.aggregation import tables as t
from services.aggregation.domain.sum_sessions import CommitteeMember, MaskedUpdate, Share, SumSession
from services.kit.database.rows import Tx, batches, columns, fetch_all, fetch_one, plain, upsert

_PLACE = ["task_id", "round", "cohort", "session_number"]
_SESSIONS: sa.Select[Any] = sa.select(*columns(SumSession, t.sum_sessions))
_MEMBERS: sa.Select[Any] = sa.select(*columns(CommitteeMember, t.clerks))
_MASKED: sa.Select[Any] = sa.select(*columns(MaskedUpdate, t.masked_updates))
_SHARES: sa.Select[Any] = sa.select(*columns(Share, t.shares))


UNDER_WAY = [state for state in SumState if state not in (SumState.DONE, SumState.FAILED)]
"""States of sessions that are not over."""


async def add_sessions(tx: Tx, sum_sessions: Sequence[SumSession]) -> None:
    """Store new sessions."""
    if sum_sessions:
        names = [field.name for field in fields(SumSession)]
        await tx.execute(
            t.sum_sessions.insert(), [plain({n: getattr(session, n) for n in names}) for session in sum_sessions]
        )


async def find_session(tx: Tx, place: Place, *, lock: bool = False) -> SumSession | None:
    """Find a session; `lock` locks it against other writers."""
    query = _SESSIONS.where(*_at(t.sum_sessions, place))
    return await fetch_one(tx, query.with_for_update() if lock else query, _session)


async def latest_sessions(tx: Tx, task_id: str, number: int, *, lock: bool = False) -> dict[int, SumSession]:
    """Load the latest session of every cohort of a round."""
    query = _latest().with_for_update(of=t.sum_sessions) if lock else _latest()
    result = await fetch_all(tx, query, _session, {"task": task_id, "round": number})
    return {item.cohort: item for item in result}


@cache
def _latest() -> sa.Select[Any]:
    s = t.sum_sessions.c
    place = (s.task_id == sa.bindparam("task"), s.round == sa.bindparam("round"))
    newest = (
        sa.select(s.cohort, sa.func.max(s.session_number).label("session_number"))
        .where(*place)
        .group_by(s.cohort)
        .subquery()
    )
    same = sa.and_(*place, s.cohort == newest.c.cohort, s.session_number == newest.c.session_number)
    return _SESSIONS.join(newest, same).order_by(s.cohort)


async def change_session(tx: Tx, place: Place, *, expected: SumState, **values: Any) -> bool:
    """Change columns of a session in the expected state; return whether it was in it."""
    where = (*_at(t.sum_sessions, place), t.sum_sessions.c.state == expected)
    return bool((await tx.execute(t.sum_sessions.update().where(*where).values(**plain(values)))).rowcount)


async def end_sessions(tx: Tx, task_id: str, number: int, state: SumState, *, only: Collection[SumState]) -> None:
    """Change the state of all sessions of a round that are in one of these states."""
    s = t.sum_sessions.c
    where = (s.task_id == task_id, s.round == number, s.state.in_(only))
    await tx.execute(t.sum_sessions.update().where(*where).values(state=state))


async def rounds_failed_for(tx: Tx, task_id: str, reason: str, *, before: int) -> set[int]:
    """Return earlier rounds in which a session failed for a reason with this prefix."""
    s = t.sum_sessions.c
    where = (s.task_id == task_id, s.round < before, s.state == SumState.FAILED, s.reason.startswith(reason))
    return set((await tx.execute(sa.select(s.round).where(*where))).scalars())


async def out_of_range(tx: Tx, task_id: str, numbers: Sequence[int], reason: str) -> list[set[str]]:
    """Return, per round, the devices whose sum failed for a reason with this prefix."""
    s = t.sum_sessions.c
    where = (s.task_id == task_id, s.round.in_(numbers), s.state == SumState.FAILED, s.reason.startswith(reason))
    result = {number: set[str]() for number in numbers}
    for session in await fetch_all(tx, _SESSIONS.where(*where), _session):
        result[session.round] |= session.people.keys.keys()
    return list(result.values())


# --- clerks -----------------------------------------------------------------------------------------------------------


async def add_members(tx: Tx, members: Sequence[CommitteeMember]) -> None:
    """Store new clerks; existing rows stay."""
    await upsert(tx, t.clerks, [asdict(member) for member in members], [*_PLACE, "device_id"], only=[])


async def find_member(tx: Tx, place: Place, device_id: str) -> CommitteeMember | None:
    """Find a device's membership in a session."""
    return await fetch_one(
        tx, _MEMBERS.where(*_at(t.clerks, place), t.clerks.c.device_id == device_id), CommitteeMember
    )


async def list_members(tx: Tx, place: Place) -> list[CommitteeMember]:
    """List the clerks of a session by position, then id."""
    c = t.clerks.c
    return await fetch_all(tx, _MEMBERS.where(*_at(t.clerks, place)).order_by(c.position, c.device_id), CommitteeMember)


async def list_round_members(tx: Tx, task_id: str, number: int) -> list[CommitteeMember]:
    """List the clerks of all sessions of a round."""
    c = t.clerks.c
    query = _MEMBERS.where(c.task_id == task_id, c.round == number)
    return await fetch_all(tx, query.order_by(c.cohort, c.session_number, c.position, c.device_id), CommitteeMember)


async def clerks_in_state(tx: Tx, task_id: str, state: ClerkState) -> set[str]:
    """Return devices that ended in this state as clerks of a task."""
    c = t.clerks.c
    return set((await tx.execute(sa.select(c.device_id).where(c.task_id == task_id, c.state == state))).scalars())


async def members_of_device(tx: Tx, device_id: str) -> list[CommitteeMember]:
    """List a device's memberships whose duty to forget was not sent yet."""
    c = t.clerks.c
    query = _MEMBERS.where(c.device_id == device_id, c.forget_sent == sa.false())
    return await fetch_all(tx, query.order_by(c.task_id, c.round, c.cohort, c.session_number), CommitteeMember)


async def devices_with_members(tx: Tx) -> set[str]:
    """Return clerks whose duty to forget was not sent yet."""
    query = sa.select(t.clerks.c.device_id).where(t.clerks.c.forget_sent == sa.false()).distinct()
    return set((await tx.execute(query)).scalars())


async def change_member(tx: Tx, place: Place, device_id: str, **values: Any) -> None:
    """Change columns of a clerk."""
    where = (*_at(t.clerks, place), t.clerks.c.device_id == device_id)
    await tx.execute(t.clerks.update().where(*where).values(**plain(values)))


# --- masked updates ---------------------------------------------------------------------------------------------------


async def add_masked(tx: Tx, updates: Sequence[MaskedUpdate]) -> None:
    """Store signed masked deliveries; existing rows stay."""
    rows = [plain(asdict(update)) for update in updates]
    await upsert(tx, t.masked_updates, rows, [*_PLACE, "device_id"], only=[])


async def list_masked(tx: Tx, place: Place) -> list[MaskedUpdate]:
    """List the masked updates of a session by device."""
    query = _MASKED.where(*_at(t.masked_updates, place)).order_by(t.masked_updates.c.device_id)
    return await fetch_all(tx, query, _masked)


async def ever_masked(tx: Tx, task_id: str, number: int) -> set[str]:
    """Return devices that delivered masked words in any session of a round."""
    m = t.masked_updates.c
    return set((await tx.execute(sa.select(m.device_id).where(m.task_id == task_id, m.round == number))).scalars())


# --- shares -----------------------------------------------------------------------------------------------------------


async def put_share(tx: Tx, share: Share) -> None:
    """Store a request for a share, or its received digest."""
    await upsert(tx, t.shares, [asdict(share)], [*_PLACE, "share"])


async def list_shares(tx: Tx, place: Place) -> dict[int, Share]:
    """List the requested shares of a session."""
    return {item.share: item for item in await fetch_all(tx, _SHARES.where(*_at(t.shares, place)), Share)}


# --- the end ----------------------------------------------------------------------------------------------------------


async def blobs_of_round(tx: Tx, task_id: str, number: int) -> set[str]:
    """Return the digests of all blobs of a round's sums."""
    first, *others = (
        sa.select(table.c[column]).where(table.c.task_id == task_id, table.c.round == number)
        for table, column in ((t.masked_updates, "digest"), (t.shares, "digest"), (t.sum_sessions, "opened"))
    )
    return set((await tx.execute(first.union(*others))).scalars()) - {""}


async def digests_needed(tx: Tx, digests: Sequence[str]) -> set[str]:
    """Return which of these blobs an unfinished sum still needs."""
    result: set[str] = set()
    for some in batches(list(digests)):
        result |= set((await tx.execute(_needed(), {"digests": list(some)})).scalars())
    return result


@cache
def _needed() -> sa.CompoundSelect[Any]:
    s, ended = t.sum_sessions, (SumState.DONE, SumState.FAILED)
    some: sa.BindParameter[str] = sa.bindparam("digests", expanding=True)
    others = []
    for table in (t.masked_updates, t.shares):
        same = sa.and_(*(table.c[name] == s.c[name] for name in _PLACE))
        others.append(sa.select(table.c.digest).join(s, same).where(table.c.digest.in_(some), s.c.state.not_in(ended)))
    return sa.select(s.c.opened).where(s.c.opened.in_(some), s.c.state.not_in(ended)).union(*others)


def _at(table: sa.Table, place: Place) -> tuple[sa.ColumnElement[bool], ...]:
    c = table.c
    return (
        c.task_id == place.task,
        c.round == place.round,
        c.cohort == place.cohort,
        c.session_number == place.session_number,
    )


def _session(*values: Any) -> SumSession:
    result = SumSession(*values)
    return replace(result, asked=tuple(result.asked))


def _masked(*values: Any) -> MaskedUpdate:
    result = MaskedUpdate(*values)
    return replace(result, letters=tuple((start, length) for start, length in result.letters))
